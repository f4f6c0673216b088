#!/bin/sh
# Stops what start-cluster.sh started, on all hosts, and cleans up after processes that were killed.
bin=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
. "$bin/config.sh"

find_python
failed=''
for host in $(hosts workers | sort -u); do
    on_host "$host" taskmanager.sh stop-all || failed="$failed $host"
done
for host in $(hosts masters); do
    on_host "$host" jobmanager.sh stop || failed="$failed $host"
done
[ -z "$failed" ] || die "not everything was stopped on:$failed"
