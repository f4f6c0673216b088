#!/bin/sh
# Prints the path of CoreDNS, the name server of the pods, built once for each version by Go; it stays in the user's cache.
# COREDNS=/path/to/coredns names another one.
# Exit codes: 3 = there is none and none can be built here (the last line says why); others = something is broken.
set -eu
version=v1.15.0

impossible() {
    echo "ensure-dns: $*" >&2
    exit 3
}

if [ -n "${COREDNS:-}" ]; then
    [ -x "$COREDNS" ] || { echo "ensure-dns: COREDNS=$COREDNS is no program" >&2; exit 1; }
    echo "$COREDNS"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
program=$folder/coredns-$version
if [ ! -x "$program" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no CoreDNS, and no Go to build it"
    mkdir -p "$folder"
    exec 9>"$folder/coredns.lock"
    flock 9 # another one may be building
    if [ ! -x "$program" ]; then
        work=$(mktemp -d "$folder/building-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod nice go install -trimpath -ldflags "-s -w" \
            "github.com/coredns/coredns@$version") >&2 || impossible "CoreDNS can't be built: Go's module proxy is needed"
        mv "$work/coredns" "$program"
    fi
fi
echo "$program"
