#!/bin/sh
# Dispatcher, ResourceManager and JobMaster host of this machine. stop hands over: JobMasters, TaskManagers and slots go
# on, and the next start finds them; stop-all ends what this host has of the cluster, also what was left behind.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
. "$bin/config.sh"

usage="Usage: jobmanager.sh start|stop|stop-all [-D key=value]..., jobmanager.sh stop dispatcher|resourcemanager|jobmaster,
or jobmanager.sh start-foreground dispatcher|resourcemanager|jobmaster"
services='resourcemanager jobmaster dispatcher'
stop_order='dispatcher jobmaster resourcemanager'

stop_services() { # its arguments, one after the other; sets $found
    found=''
    for service in "$@"; do
        file=$(pid_file "$service" 0)
        if [ -f "$file" ]; then
            found=yes
            stop "$service" "$file"
        fi
    done
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
start)
    find_python
    missing='' # a service that was killed is started beside those that go on
    for service in $services; do
        if running "$(pid_file "$service" 0)"; then
            echo "The $service is running already, as process $pid on host $this_host."
        else
            missing="$missing $service"
        fi
    done
    [ -n "$missing" ] || die "the JobManager is running already on host $this_host; jobmanager.sh stop-all ends it."
    make_secret
    for service in $missing; do
        echo "Starting $service on host $this_host."
        launch "$service" 0 "$@"
    done
    if ! await; then
        for service in $missing; do
            stop "$service" "$(pid_file "$service" 0)" >/dev/null
        done
        die "the JobManager did not start on host $this_host; the logs are in $logs."
    fi
    # What it finds again after a restart: a stand-by has not said it yet.
    for service in $missing; do
        sed -n '/^firesteel\.cluster\.directory is /p' "$logs/$prefix-$service-0-$this_host.out"
    done | sort -u
    ;;
start-foreground)
    find_python
    case ${1:-} in dispatcher | resourcemanager | jobmaster) ;; *) die "$usage" ;; esac
    make_secret
    foreground "$@"
    ;;
stop)
    case ${1:-} in
    dispatcher | resourcemanager | jobmaster) stopping=$1 what="$1" ;;
    '' | -D*) stopping=$stop_order what=JobManager ;;
    *) die "$usage" ;;
    esac
    # shellcheck disable=SC2086 # several words
    stop_services $stopping
    if [ -n "$found" ]; then
        echo "Jobs that run go on; jobmanager.sh start goes on with them, and stop-cluster.sh ends what is left."
    else
        echo "There is no $what to stop on host $this_host."
    fi
    ;;
stop-all)
    find_python
    # shellcheck disable=SC2086 # several words
    stop_services $stop_order
    # What goes on without services, or was left when they were killed: JobMasters, TaskManagers that the
    # ResourceManager has started, Spark's driver.
    remains=$("$python" -P -m firesteel.service.remains --config-dir "$conf" "$@")
    [ -z "$remains" ] || echo "$remains"
    [ -n "$found$remains" ] || echo "There is no JobManager to stop on host $this_host."
    ;;
*)
    die "$usage"
    ;;
esac
