#!/bin/sh
# Prints the path of a Chromium. Where there is none, root on Debian installs the distribution's package, once for the
# machine. CHROMIUM=/path/to/chromium names another one.
# Exit codes: 3 = there is none and none can be had here (the last line says why); others = something is broken.
set -eu

impossible() {
    echo "ensure-chromium: $*" >&2
    exit 3
}

find_chromium() {
    for name in chromium chromium-browser google-chrome chrome; do
        command -v "$name" && exit 0
    done
    return 0
}

if [ -n "${CHROMIUM:-}" ]; then
    [ -x "$CHROMIUM" ] || { echo "ensure-chromium: CHROMIUM=$CHROMIUM is no program" >&2; exit 1; }
    echo "$CHROMIUM"
    exit
fi
find_chromium
command -v apt-get >/dev/null || impossible "there is no Chromium, and no apt-get to install one"
[ "$(id -u)" = 0 ] || impossible "there is no Chromium; root would install the package chromium"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install="apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium"
if ! DEBIAN_FRONTEND=noninteractive $install >"$log" 2>&1; then
    apt-get -o DPkg::Lock::Timeout=300 update >"$log" 2>&1 || impossible "apt-get reaches no packages: $(tail -n 1 "$log")"
    DEBIAN_FRONTEND=noninteractive $install >"$log" 2>&1 || impossible "apt-get installs no chromium: $(tail -n 1 "$log")"
fi
find_chromium
echo "ensure-chromium: the package is installed, but no chromium is on PATH" >&2
exit 1
