#!/bin/sh
# Leaves a running Docker engine with Compose v2 and a base image for our own builds. May be run again at any time.
# On a machine with a Docker of its own nothing is installed; else it needs root on Debian. No image is pulled:
# the base image is made from Debian's packages and named on the first argument (default firesteel-test/base:2).
# Exit codes: 3 = this machine has no engine and can get none (the last line says why); others = something is broken.
set -eu
image=${1:-firesteel-test/base:2}
pid_file=${DOCKERD_PID_FILE:-/var/run/docker.pid} log=${DOCKERD_LOG:-/var/log/dockerd.log}

die() {
    echo "ensure-engine: $*" >&2
    exit 1
}

impossible() {
    echo "ensure-engine: $*" >&2
    exit 3
}

as_debian_root() {
    [ "$(id -u)" = 0 ] || impossible "$1, and it can be installed by root only"
    command -v apt-get >/dev/null || impossible "$1, and this is not Debian, where it could be installed"
}

lists_are_fresh=no
install_packages() {
    if [ $lists_are_fresh = no ]; then
        apt-get update -q >&2 || impossible "the lists of Debian's packages can't be fetched"
        lists_are_fresh=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2 ||
        impossible "Debian's packages $* can't be installed"
}

engine_runs() { # it may be slow, or just be starting
    pid=$(cat "$pid_file" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]
}

if ! docker info >/dev/null 2>&1; then
    if ! command -v dockerd >/dev/null; then
        as_debian_root "there is no Docker engine"
        install_packages docker.io iptables
    fi
    [ "$(id -u)" = 0 ] || impossible "the Docker engine does not answer, and only root can start it"
    if ! engine_runs; then
        unshare --mount true 2>/dev/null || impossible "root may not mount anything here, and a Docker engine has to"
        rm -f "$pid_file" # of one that was killed
        # It outlives the tests, and their temporary directory.
        env -u TMPDIR -u FIRESTEEL_TEST_SESSION setsid nohup dockerd >"$log" 2>&1 </dev/null &
    fi
    tries=0
    until docker info >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || die "dockerd does not come up; see $log"
        sleep 0.1
    done
fi

if ! docker compose version >/dev/null 2>&1; then # Debian 12 has no Compose v2: the next release's package is unpacked
    as_debian_root "there is no Docker Compose v2"
    [ -f /etc/apt/sources.list.d/debian.sources ] || impossible "there is no Docker Compose v2, nor a source to get it from"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    chmod 755 "$work"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/sources"
    uri=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources)
    cat >"$work/sources/next.sources" <<SOURCES
Types: deb
URIs: $uri
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    (
        cd "$work"
        set -- -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources" \
            -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root
        apt-get "$@" update -q >&2 && apt-get "$@" download docker-compose >&2 ||
            impossible "there is no Docker Compose v2, and its package can't be fetched"
        dpkg-deb -x docker-compose_*.deb unpacked
        plugin=$(find unpacked -path '*cli-plugins/*' -type f | head -n 1)
        install -D -m 755 "$plugin" /usr/local/lib/docker/cli-plugins/docker-compose
    )
    rm -rf "$work"
fi

if ! docker image inspect "$image" >/dev/null 2>&1; then
    if ! command -v mmdebstrap >/dev/null; then
        as_debian_root "there is no mmdebstrap to make a base image with"
        install_packages mmdebstrap
    fi
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # usr-is-merged instead of usrmerge, which needs 46 MB of Perl: as large as Docker's slim images
    mmdebstrap --quiet --format=tar --variant=minbase \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged,ca-certificates,python3,python3-venv \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --aptopt='Acquire::Languages "none"' \
        bookworm "$work/root.tar" /etc/apt/sources.list.d/debian.sources >&2 ||
        impossible "the base image can't be made of Debian's packages"
    docker import --change 'CMD ["sh"]' "$work/root.tar" "$image" >/dev/null
    rm -rf "$work"
fi
