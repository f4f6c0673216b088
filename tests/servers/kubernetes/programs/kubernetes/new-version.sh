#!/bin/sh
# new-version.sh 1.35.4: writes go.mod and go.sum for a version of Kubernetes. Its modules name each other by folders of
# one repository, which Go takes from no proxy: each is replaced by its published version.
set -eu
version=$1
cd "$(dirname "$0")"
source=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^.*"Dir": "\(.*\)",$/\1/p')
{
    echo "module kubernetes"
    grep -E '^(go|godebug) ' "$source/go.mod"
    echo "require k8s.io/kubernetes v$version"
    sed -n "s#^\t\(k8s.io/[a-z-]*\) => ./staging/.*#replace \1 => \1 v0.${version#1.}#p" "$source/go.mod"
} >go.mod
rm -f go.sum
GOFLAGS=-mod=mod go mod tidy
