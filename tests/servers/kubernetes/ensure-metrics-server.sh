#!/bin/sh
# Prints the path of metrics-server. Go builds it from its own unchanged source, which takes four minutes of a processor
# and is done once for each version: what was built stays in the user's cache. METRICS_SERVER=/path/to/metrics-server
# names another one.
# Exit codes: 3 = there is none and none can be built here (the last line says why); others = something is broken.
set -eu
version=0.8.0

impossible() {
    echo "ensure-metrics-server: $*" >&2
    exit 3
}

if [ -n "${METRICS_SERVER:-}" ]; then
    [ -x "$METRICS_SERVER" ] || { echo "ensure-metrics-server: METRICS_SERVER=$METRICS_SERVER is no program" >&2; exit 1; }
    echo "$METRICS_SERVER"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
program=$folder/metrics-server-$version
if [ ! -x "$program" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no metrics-server, and no Go to build one"
    mkdir -p "$folder"
    exec 9>"$folder/metrics-server.lock"
    flock 9 # another one may be building
    if [ ! -x "$program" ]; then
        work=$(mktemp -d "$folder/building-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod nice go install -trimpath -ldflags "-s -w" \
            "sigs.k8s.io/metrics-server/cmd/metrics-server@v$version") >&2 ||
            impossible "metrics-server can't be built: Go's module proxy is needed"
        mv "$work/metrics-server" "$program"
    fi
fi
echo "$program"
