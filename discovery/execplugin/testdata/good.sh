#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
echo '{"version":1,"peers":[{"host":"b.example.org","addrs":["192.0.2.11"]},{"host":"a.example.org","port":2381,"addrs":["192.0.2.10"],"clientURLs":["http://a.example.org:2379"]}],"ttl":7}'
