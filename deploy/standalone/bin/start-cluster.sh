#!/bin/sh
# Starts a cluster: the JobManager on the host in conf/masters, a TaskManager for each line of conf/workers.
# Arguments (-D key=value) go to all processes.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

find_python
make_secret
master=$(hosts masters)
workers=$(hosts workers)
case $master in
'') die "$conf/masters names no host." ;;
*"$new_line"*) die "$conf/masters names several hosts; this version has one JobManager." ;;
esac
[ -n "$workers" ] || die "$conf/workers names no host."
echo "Starting cluster."
for host in $(printf '%s\n' "$master" "$workers" | sort -u); do
    is_here "$host" || share_secret "$host" || die "$host can't be reached by ssh."
done
on_host "$master" jobmanager.sh start "$@"
failed=''
for host in $workers; do
    on_host "$host" taskmanager.sh start "$@" || failed="$failed $host"
done
[ -z "$failed" ] || die "no TaskManager was started on:$failed. The rest of the cluster runs; stop-cluster.sh ends it."
