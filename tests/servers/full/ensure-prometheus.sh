#!/bin/sh
# Prints a folder with the programs prometheus and promtool: this machine's, or those of Debian's package, which is
# unpacked once into the user's cache. Nothing is installed.
# Exit codes: 3 = there are none and none can be had here (the last line says why); others = something is broken.
set -eu

impossible() {
    echo "ensure-prometheus: $*" >&2
    exit 3
}

if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
    dirname "$(command -v promtool)"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
programs=$folder/prometheus
if [ ! -x "$programs/promtool" ]; then
    command -v apt-get >/dev/null || impossible "there is no Prometheus, and this is not Debian, where its package could be had"
    mkdir -p "$folder"
    exec 9>"$folder/prometheus.lock"
    flock 9 # another one may be at it
    if [ ! -x "$programs/promtool" ]; then
        work=$(mktemp -d "$folder/unpacking-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && (apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; })) >&2 ||
            impossible "Debian's package prometheus can't be downloaded"
        dpkg-deb -x "$work"/prometheus_*.deb "$work/x"
        mv "$work/x/usr/bin" "$programs"
    fi
fi
echo "$programs"
