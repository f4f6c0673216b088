#!/bin/sh
# Prints the path of a program. Go builds it from its own unchanged source, which takes minutes and is done once for each
# version: what was built stays in the user's cache.
#   ensure-go-program.sh NAME MODULE VERSION VARIABLE
# MODULE is the path that `go install` takes, VERSION is Go's; the environment variable VARIABLE names another program.
# Exit codes: 3 = there is none and none can be built here (the last line says why); others = something is broken.
set -eu
name=$1 module=$2 version=$3 variable=$4

impossible() {
    echo "ensure-go-program: $*" >&2
    exit 3
}

eval "given=\${$variable:-}"
if [ -n "$given" ]; then
    [ -x "$given" ] || { echo "ensure-go-program: $variable=$given is no program" >&2; exit 1; }
    echo "$given"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
program=$folder/$name-${version#v0.0.0-}
if [ ! -x "$program" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no $name, and no Go to build one"
    mkdir -p "$folder"
    exec 9>"$folder/$name.lock"
    flock 9 # another one may be building
    if [ ! -x "$program" ]; then
        work=$(mktemp -d "$folder/building-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && CGO_ENABLED=0 GOBIN="$work" GOFLAGS=-mod=mod nice go install -trimpath -ldflags "-s -w" \
            "$module@$version") >&2 || impossible "$name can't be built: Go's module proxy is needed"
        mv "$work/${module##*/}" "$program"
    fi
fi
echo "$program"
