#!/bin/sh
echo '{"version":1,"info":{"name":"x","version":"1","contractVersions":[2,3]}}'
