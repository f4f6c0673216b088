#!/bin/sh
# Leaves on this machine what a node of Kubernetes runs pods with: containerd, runc, CNI plug-ins, iptables, conntrack.
# May be run again at any time. What is missing is installed, which needs root on Debian.
# It prints the path of the pods' first process, which Go builds once; it stays in the user's cache.
# Exit codes: 3 = it can't be had here (the last line says why); others = something is broken.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

impossible() {
    echo "ensure-node: $*" >&2
    exit 3
}

[ "$(id -u)" = 0 ] || impossible "only root can make nodes of Kubernetes"
missing=
command -v containerd >/dev/null || missing="$missing containerd"
command -v runc >/dev/null || missing="$missing runc"
command -v iptables >/dev/null || missing="$missing iptables"
command -v conntrack >/dev/null || missing="$missing conntrack"
command -v ip >/dev/null || missing="$missing iproute2"
command -v openssl >/dev/null || missing="$missing openssl"
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || impossible "there is no$missing, and this is not Debian, where it could be installed"
    apt-get update -q >&2 || impossible "the lists of Debian's packages can't be fetched"
    # shellcheck disable=SC2086 # they are several
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >&2 ||
        impossible "Debian's packages$missing can't be installed"
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
program=$folder/pause-1
if [ ! -x "$program" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no Go to build the first process of pods"
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/building-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    (cd "$here/programs/pause" && CGO_ENABLED=0 GOFLAGS="-mod=mod -buildvcs=false" go build -trimpath -ldflags "-s -w" \
        -o "$work/pause" .) >&2 || impossible "the first process of pods can't be built"
    mv "$work/pause" "$program"
fi
echo "$program"
