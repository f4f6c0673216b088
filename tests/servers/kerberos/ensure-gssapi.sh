#!/bin/sh
# Prints a folder with the Python package gssapi for an interpreter, built once from its source.
#   ensure-gssapi.sh PYTHON
# Exit codes: 3 = it is not here and can't be had (the last line says why); others = something is broken.
set -eu
python=$1

impossible() {
    echo "ensure-gssapi: $*" >&2
    exit 3
}

version=$("$python" -c 'import sys, platform; print(f"{sys.implementation.cache_tag}-{platform.machine()}")')
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
made=$folder/gssapi-1-$version
mkdir -p "$folder"
exec 9>"$folder/gssapi.lock"
flock 9 # another one may be building
if [ ! -d "$made" ]; then
    if ! command -v krb5-config >/dev/null; then
        [ "$(id -u)" = 0 ] || impossible "there are no headers of Kerberos, and only root can install them"
        command -v apt-get >/dev/null || impossible "there are no headers of Kerberos, and this is not Debian"
        apt-get update -q >&2 || impossible "the lists of Debian's packages can't be fetched"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc libkrb5-dev >&2 ||
            impossible "Debian's packages can't be installed"
    fi
    work=$(mktemp -d "$folder/building-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # The environment has no pip of its own; that of the Python that it was made from does it.
    base=$("$python" -c 'import sys; print(sys._base_executable)')
    "$base" -m pip --python "$python" install -q --target "$work/made" 'gssapi>=1.8,<2' >&2 ||
        impossible "gssapi can't be built"
    mv "$work/made" "$made"
fi
echo "$made"
