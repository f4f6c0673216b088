#!/bin/sh
# Prints the path of metrics-server; see ensure-go-program.sh. METRICS_SERVER=/path/to/metrics-server names another one.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
exec sh "$here/../ensure-go-program.sh" metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server v0.8.0 \
    METRICS_SERVER
