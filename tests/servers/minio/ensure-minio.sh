#!/bin/sh
# Prints the path of a MinIO server's program. It is built from its own unchanged source by Go, which takes minutes and
# is done once for each version: what was built stays in the user's cache. MINIO_SERVER=/path/to/minio names another one.
# Exit codes: 3 = there is none and none can be built here (the last line says why); others = something is broken.
set -eu
version=v0.0.0-20260212201848-7aac2a2c5b7c

impossible() {
    echo "ensure-minio: $*" >&2
    exit 3
}

if [ -n "${MINIO_SERVER:-}" ]; then
    [ -x "$MINIO_SERVER" ] || { echo "ensure-minio: MINIO_SERVER=$MINIO_SERVER is no program" >&2; exit 1; }
    echo "$MINIO_SERVER"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
program=$folder/minio-${version#v0.0.0-}
if [ ! -x "$program" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no MinIO server, and no Go to build one"
    mkdir -p "$folder"
    exec 9>"$folder/minio.lock"
    flock 9 # another one may be building
    if [ ! -x "$program" ]; then
        work=$(mktemp -d "$folder/building-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod nice go install -trimpath -ldflags "-s -w" \
            "github.com/minio/minio@$version") >&2 || impossible "MinIO can't be built: Go's module proxy is needed"
        mv "$work/minio" "$program"
    fi
fi
echo "$program"
