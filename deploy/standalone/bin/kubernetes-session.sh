#!/bin/sh
# A session cluster on Kubernetes, as Flink's script makes one: kubernetes-session.sh -Dkubernetes.cluster-id=NAME.
bin=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd -P)
exec "$bin/firesteel" kubernetes-session "$@"
