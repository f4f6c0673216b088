#!/bin/sh
# TaskManagers of this machine. Each start adds one; stop ends the one that was started last, stop-all ends all.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
start)
    find_python
    make_secret
    instance=0 others=0
    while read -r file; do
        if [ -n "$file" ] && running "$file"; then
            others=$((others + 1))
        fi
    done <<FILES
$(pid_files taskmanager)
FILES
    while running "$(pid_file taskmanager $instance)"; do
        instance=$((instance + 1))
    done
    [ $others -eq 0 ] || echo "$others TaskManager(s) are already running on host $this_host."
    echo "Starting taskmanager on host $this_host."
    launch taskmanager $instance "$@"
    await || die "the TaskManager did not start on host $this_host; the logs are in $logs."
    ;;
start-foreground)
    find_python
    make_secret
    foreground taskmanager "$@"
    ;;
stop | stop-all)
    set --
    while read -r file; do
        [ -z "$file" ] || set -- "$@" "$file"
    done <<FILES
$(pid_files taskmanager)
FILES
    if [ $# -eq 0 ]; then
        echo "There is no TaskManager to stop on host $this_host."
        exit 0
    fi
    if [ "$command" = stop ]; then
        shift $(($# - 1))
    fi
    stop taskmanager "$@"
    ;;
*)
    die "Usage: taskmanager.sh start|start-foreground|stop|stop-all [-D key=value]..."
    ;;
esac
