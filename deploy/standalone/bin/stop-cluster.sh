#!/bin/sh
# Ends what start-cluster.sh started, on all hosts, and what was left by processes that were stopped or killed. First the
# coordinators: jobs are not told that they lose their slots, and go on with the next start.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

find_python
failed=''
for host in $(hosts masters); do
    on_host "$host" jobmanager.sh stop-all "$@" || failed="$failed $host"
done
for host in $(hosts workers | sort -u); do
    on_host "$host" taskmanager.sh stop-all || failed="$failed $host"
done
[ -z "$failed" ] || die "not everything was stopped on:$failed"
