#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1],"parameters":[{"name":"zone","required":true,"description":"where"},{"name":"port"}]}}'
	exit ;;
esac
echo '{"version":1,"peers":[{"host":"192.0.2.10"}]}'
