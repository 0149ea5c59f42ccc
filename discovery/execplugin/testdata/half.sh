#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
printf '{"version":1,"peers":[{"host":"a.exam'
