#!/bin/sh
case $(cat) in *\"info\"*)
	echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[1]}}'
	exit ;;
esac
{ env | grep -v -e ^PWD= -e ^_= -e ^OLDPWD= -e ^SHLVL=; pwd; ls -A; echo "args=$#"; } | sed 's/^/saw /' >&2
echo '{"version":1,"peers":[{"host":"192.0.2.10"}]}'
