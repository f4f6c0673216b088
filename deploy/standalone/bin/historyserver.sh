#!/bin/sh
# The history server of this machine: shows jobs that have ended, from the archives in historyserver.archive.fs.dir.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
start)
    find_python
    make_secret
    if running "$(pid_file historyserver 0)"; then
        echo "The historyserver (process $pid) is already running on host $this_host."
        exit 0
    fi
    echo "Starting historyserver on host $this_host."
    launch historyserver 0 "$@"
    await || die "the history server did not start on host $this_host; the logs are in $logs."
    ;;
start-foreground)
    find_python
    make_secret
    foreground historyserver "$@"
    ;;
stop)
    file=$(pid_file historyserver 0)
    if [ ! -f "$file" ]; then
        echo "There is no history server to stop on host $this_host."
        exit 0
    fi
    stop historyserver "$file"
    ;;
*)
    die "Usage: historyserver.sh start|start-foreground|stop [-D key=value]..."
    ;;
esac
