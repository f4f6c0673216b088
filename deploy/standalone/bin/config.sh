# What the scripts here have in common; they read it with `. config.sh`. POSIX sh.
#
# FIRESTEEL_CONF_DIR  directory of config.yaml, masters, workers and cluster-secret   (../conf)
# FIRESTEEL_LOG_DIR   logs (*.log, rotated) and first words (*.out) of the processes  (../log)
# FIRESTEEL_PID_DIR   pid files                                                       (../run)
# FIRESTEEL_PYTHON    the Python that has Firesteel       (that of `firesteel-dispatcher` on the path, else .venv)
# FIRESTEEL_SSH_OPTS  options of ssh for hosts other than this one

set -eu

home=$(CDPATH='' cd -- "$bin/.." && pwd -P)
conf=${FIRESTEEL_CONF_DIR:-$home/conf}
logs=${FIRESTEEL_LOG_DIR:-$home/log}
pids=${FIRESTEEL_PID_DIR:-$home/run}
this_host=$(uname -n)
user=$(id -un 2>/dev/null) || user=$(id -u) # a user id without an entry in /etc/passwd has no name
prefix=firesteel-$user
START_SECONDS=${FIRESTEEL_START_SECONDS:-60}
STOP_SECONDS=${FIRESTEEL_STOP_SECONDS:-40}
new_line='
'

die() {
    echo "$(basename -- "$0"): $*" >&2
    exit 1
}

case $conf in /*) ;; *) conf=$(pwd -P)/$conf ;; esac
case $logs in /*) ;; *) logs=$(pwd -P)/$logs ;; esac
case $pids in /*) ;; *) pids=$(pwd -P)/$pids ;; esac
[ -f "$conf/config.yaml" ] || die "there is no $conf/config.yaml; set FIRESTEEL_CONF_DIR to the directory that has it."

find_python() { # sets $python
    if [ -n "${FIRESTEEL_PYTHON:-}" ]; then
        python=$FIRESTEEL_PYTHON
    elif python=$(command -v firesteel-dispatcher); then
        python=$(dirname -- "$python")/python
    else
        python=$home/../../.venv/bin/python
    fi
    [ -x "$python" ] || die "no Python with Firesteel was found; install Firesteel, or set FIRESTEEL_PYTHON to its Python."
}

start_time() { # $1: pid, $2: its start time as it is written down. Prints the one of the process that has the pid now.
    if [ -r "/proc/$1/stat" ]; then
        # The second field is the name in brackets, which may hold anything; state and start time are 3 and 22.
        sed -e 's/^.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" && $1 != "X" { print $20 }'
    elif [ ! -d /proc/self ] && ps -o command= -p "$1" 2>/dev/null | grep -q firesteel; then
        echo "$2" # no /proc here: any process of ours with this pid will do
    fi
}

running() { # $1: pid file. Whether its process runs; sets $pid.
    pid='' start=''
    { read -r pid && read -r start; } 2>/dev/null <"$1" || return 1
    [ -n "$pid" ] && [ -n "$start" ] && [ "$(start_time "$pid" "$start")" = "$start" ]
}

pid_file() { # $1: service, $2: instance
    echo "$pids/$prefix-$1-$2.pid"
}

# The pid files of the service $1, in the order of their instances: those of this user on this host.
pid_files() {
    for file in "$pids/$prefix-$1"-*.pid; do
        [ -f "$file" ] && echo "${file##*-} $file"
    done | sort -n | cut -d' ' -f2-
}

module() { # $1: service. Prints what Python runs.
    case $1 in
    standalone-job) echo firesteel_dispatcher.standalone_job ;;
    *) echo "firesteel_$1" ;;
    esac
}

keep_old() { # $1: a file. It becomes <file>.1, those before it go on by one; ten are kept, as of logs.
    [ -s "$1" ] || return 0
    number=10
    while [ $((number -= 1)) -ge 1 ]; do
        [ ! -f "$1.$number" ] || mv -f "$1.$number" "$1.$((number + 1))"
    done
    mv -f "$1" "$1.1"
}

launch() { # $1: service, $2: instance, others: arguments. Starts it and does not wait; await does.
    service=$1 instance=$2
    shift 2
    file=$(pid_file "$service" "$instance")
    mkdir -p "$logs" "$pids"
    out=$logs/$prefix-$service-$instance-$this_host.out
    keep_old "$out"
    nohup "$python" -P -m "$(module "$service")" --config-dir "$conf" --pid-file "$file" --log-file "${out%.out}.log" "$@" \
        >>"$out" 2>&1 </dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- & # what the caller holds (flock, say) it holds alone
    launched="${launched:-}$service $instance $!$new_line"
}

await() { # Waits until all that were launched listen, or stand by while another host leads. Says of each that did not what its last words were; then fails. Says what they find odd in the settings.
    failed=0 warnings=''
    while read -r service instance child; do
        [ -n "$service" ] || continue
        file=$(pid_file "$service" "$instance")
        out=$logs/$prefix-$service-$instance-$this_host.out
        left=$((START_SECONDS * 10))
        until [ "$(sed -n 1p "$file" 2>/dev/null)" = "$child" ] && [ -n "$(sed -n 3p "$file" 2>/dev/null)" ]; do
            if ! kill -0 "$child" 2>/dev/null; then
                sed -e '$!d' "$out" >&2
                failed=1
                break
            elif [ $((left -= 1)) -le 0 ]; then
                echo "The $service did not listen within $START_SECONDS s on host $this_host; see ${out%.out}.log." >&2
                failed=1
                break
            fi
            sleep 0.1
        done
        warnings=$warnings$(sed -n 's/^warning: /&/p' "$out")$new_line
        [ "$(sed -n 3p "$file" 2>/dev/null)" != standby ] || echo "The $service on host $this_host stands by: another one leads."
    done <<LAUNCHED
$launched
LAUNCHED
    launched=''
    printf %s "$warnings" | sed '/^$/d' | sort -u >&2 # all of them read the same settings
    return $failed
}

foreground() { # as launch, in place of this shell, with the log on the terminal
    service=$1
    shift
    exec "$python" -P -m "$(module "$service")" --config-dir "$conf" "$@"
}

stop() { # $1: service, others: its pid files. All are told first, then waited for.
    service=$1
    shift
    for file in "$@"; do
        if running "$file"; then
            echo "Stopping $service (process $pid) on host $this_host."
            kill -TERM "$pid" 2>/dev/null || :
        elif [ -n "$pid" ]; then
            echo "The $service (process $pid) is not running any more on host $this_host."
            rm -f "$file"
        fi
    done
    left=$((STOP_SECONDS * 10))
    for file in "$@"; do
        while running "$file"; do
            if [ $((left -= 1)) -le 0 ]; then
                echo "The $service (process $pid) did not stop within $STOP_SECONDS s on host $this_host; it is killed." >&2
                kill -KILL "$pid" 2>/dev/null || :
                left=20
            fi
            sleep 0.1
        done
        rm -f "$file"
    done
}

make_secret() { # a cluster secret, unless the settings or the environment lead to one
    if [ -n "${FIRESTEEL_SECRET:-}" ] || [ -e "$conf/cluster-secret" ] ||
        sed -e 's/#.*//' "$conf/config.yaml" | grep -q 'secret-file'; then
        return
    fi
    part=$conf/.cluster-secret.$$
    (umask 077 && od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' >"$part") || die "$conf can't be written."
    [ "$(wc -c <"$part")" -eq 64 ] || die "/dev/urandom gave no secret."
    ln "$part" "$conf/cluster-secret" 2>/dev/null || : # somebody else was faster: theirs holds
    rm -f "$part"
    echo "Made a cluster secret: $conf/cluster-secret."
}

hosts() { # $1: masters or workers. Prints its hosts, one on each line, without ports (host:8081, [::1]:8081) and brackets.
    [ -f "$conf/$1" ] || die "there is no $conf/$1; write the hosts into it, one on each line."
    sed -e 's/#.*//' -e 's/[[:space:]]//g' -e 's/^\[\(.*\)\]\(:[0-9]*\)\{0,1\}$/\1/' -e 's/^\([^:]*\):[0-9]*$/\1/' -e '/^$/d' "$conf/$1"
}

is_here() { # $1: host
    case $1 in
    localhost | 127.* | ::1 | "$this_host" | "${this_host%%.*}") return 0 ;;
    *) return 1 ;;
    esac
}

quoted() { # prints its arguments for a shell
    for word in "$@"; do
        printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
    done
}

on_host() { # $1: host, $2: script in this directory, others: its arguments. Runs it there: the same paths hold there.
    host=$1 script=$2
    shift 2
    if is_here "$host"; then
        "$bin/$script" "$@"
        return
    fi
    settings=$(quoted "FIRESTEEL_CONF_DIR=$conf" "FIRESTEEL_LOG_DIR=$logs" "FIRESTEEL_PID_DIR=$pids" "FIRESTEEL_PYTHON=$python")
    # shellcheck disable=SC2029,SC2086 # all is to be put together here; the options are several words
    ssh ${FIRESTEEL_SSH_OPTS:-} -n "$host" "env$settings$(quoted "$bin/$script" "$@")"
}

share_secret() { # $1: host. Brings the cluster secret there, unless it has one. It travels through a pipe.
    [ -z "${FIRESTEEL_SECRET:-}" ] || die "FIRESTEEL_SECRET does not reach other hosts; use $conf/cluster-secret."
    [ -f "$conf/cluster-secret" ] || return 0
    file=$(quoted "$conf/cluster-secret")
    # shellcheck disable=SC2029,SC2086
    ssh ${FIRESTEEL_SSH_OPTS:-} "$1" "umask 077; test -s$file || cat >$file" <"$conf/cluster-secret"
}
