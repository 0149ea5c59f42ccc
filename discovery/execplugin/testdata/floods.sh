#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
trap '' PIPE
while :; do echo '{"version":1,"peers":[{"host":"a.example.org"},{"host":"b.example.org"}]}          '; done 2>/dev/null
