#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
setsid sleep 3 &
echo '{"version":1,"peers":[{"host":"192.0.2.10"}]}'
