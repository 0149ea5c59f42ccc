#!/bin/sh
case $(cat) in *\"info\"*)
	printf '%s\n' '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
printf '%s\n' '{"version":1,"error":{"code":"retry","message":"1 of 3 are\nregistered","retryAfter":7}}'
exit 1
