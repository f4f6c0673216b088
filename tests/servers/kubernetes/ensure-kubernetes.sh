#!/bin/sh
# Prints the folder with Kubernetes' programs (kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
# kube-proxy, kubectl) and etcd. Go builds them from their own unchanged sources, which takes about eight minutes of a
# processor and 1.5 GB of memory, and is done once for each version: what was built (165 MB) stays in the user's cache.
# KUBERNETES_PROGRAMS=/path/to/folder names others.
# Exit codes: 3 = there are none and none can be built here (the last line says why); others = something is broken.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
version=$(sed -n 's#^.*k8s.io/kubernetes v##p' "$here/programs/kubernetes/go.mod")
etcd=$(sed -n 's#^.*go.etcd.io/etcd/server/v3 v##p' "$here/programs/etcd/go.mod")
programs="kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl"

impossible() {
    echo "ensure-kubernetes: $*" >&2
    exit 3
}

build() { # $1: folder below programs, $2: linker flags, $3: what it makes
    (cd "$here/programs/$1" && CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" nice go build -p 2 -trimpath \
        -ldflags "-s -w $2" -o "$3" .) >&2 || impossible "$1 can't be built: Go's module proxy is needed"
}

if [ -n "${KUBERNETES_PROGRAMS:-}" ]; then
    for name in $programs etcd; do
        [ -x "$KUBERNETES_PROGRAMS/$name" ] ||
            { echo "ensure-kubernetes: KUBERNETES_PROGRAMS=$KUBERNETES_PROGRAMS has no program $name" >&2; exit 1; }
    done
    echo "$KUBERNETES_PROGRAMS"
    exit
fi
folder=${XDG_CACHE_HOME:-$HOME/.cache}/firesteel/servers
made=$folder/kubernetes-$version-etcd-$etcd
if [ ! -d "$made" ]; then
    PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin
    command -v go >/dev/null || impossible "there is no Kubernetes, and no Go to build one"
    mkdir -p "$folder"
    exec 9>"$folder/kubernetes.lock"
    flock 9 # another one may be building
    if [ ! -d "$made" ]; then
        work=$(mktemp -d "$folder/building-XXXXXX")
        trap 'rm -rf "$work"' EXIT
        # without these the programs tell a version that no tool takes for one
        flags="" minor=${version#1.}
        for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
            flags="$flags -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
            flags="$flags -X $package.gitTreeState=clean"
        done
        build kubernetes "$flags" "$work/kubernetes"
        build etcd "" "$work/etcd"
        for name in $programs; do
            ln -s kubernetes "$work/$name"
        done
        mv "$work" "$made"
        trap - EXIT
        chmod 755 "$made"
    fi
fi
echo "$made"
