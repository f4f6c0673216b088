#!/bin/sh
# A JobManager of this machine that runs one program and ends with it (application mode). TaskManagers are started with
# taskmanager.sh, or by the ResourceManager (firesteel.resourcemanager.driver: local-process). stop ends the cluster on
# this host; the next start goes on with a program that had not ended.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

usage="Usage: standalone-job.sh start|start-foreground --python FILE [options] [args], or standalone-job.sh stop
(standalone-job.sh start-foreground --help tells the options)"

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
start)
    find_python
    make_secret
    if running "$(pid_file standalone-job 0)"; then
        die "an application runs already, as process $pid on host $this_host; standalone-job.sh stop ends it."
    fi
    echo "Starting standalone-job on host $this_host."
    launch standalone-job 0 "$@"
    await || die "the application did not start on host $this_host; the logs are in $logs."
    sed -n '/^application /p' "$logs/$prefix-standalone-job-0-$this_host.out"
    ;;
start-foreground)
    find_python
    make_secret
    foreground standalone-job "$@"
    ;;
stop)
    file=$(pid_file standalone-job 0)
    if [ ! -f "$file" ]; then
        echo "There is no application to stop on host $this_host."
        exit 0
    fi
    STOP_SECONDS=$((STOP_SECONDS * 3)) # three services, one after the other
    stop standalone-job "$file"
    ;;
*)
    die "$usage"
    ;;
esac
