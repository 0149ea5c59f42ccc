#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
i=0
while [ $i -lt 300 ]; do printf '%04000d\n' 0 >&2; i=$((i + 1)); done
echo '{"version":1,"peers":[{"host":"192.0.2.10"}]}'
