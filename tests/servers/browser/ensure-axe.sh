#!/bin/sh
# Prints the path of axe.min.js, which checks pages for accessibility. It comes from npm's package axe-core, once for each
# version, and stays in the user's cache. AXE=/path/to/axe.min.js names another one.
# Exit codes: 3 = there is none and none can be had here (the last line says why); others = something is broken.
set -eu
version=4.14.1

impossible() {
    echo "ensure-axe: $*" >&2
    exit 3
}

if [ -n "${AXE:-}" ]; then
    [ -f "$AXE" ] || { echo "ensure-axe: AXE=$AXE is no file" >&2; exit 1; }
    echo "$AXE"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
made=$folder/axe-core-$version.min.js
if [ ! -f "$made" ]; then
    command -v npm >/dev/null || impossible "there is no axe-core, and no npm to fetch it; set AXE"
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/fetching-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && npm pack --silent "axe-core@$version" >&2) || impossible "npm's registry is needed for axe-core"
    (cd "$work" && tar -xzf ./*.tgz)
    mv "$work/package/axe.min.js" "$made" # at once: another one may be fetching
fi
echo "$made"
