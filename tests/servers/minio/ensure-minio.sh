#!/bin/sh
# Prints the path of a MinIO server's program; see ensure-go-program.sh. MINIO_SERVER=/path/to/minio names another one.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
exec sh "$here/../ensure-go-program.sh" minio github.com/minio/minio v0.0.0-20260212201848-7aac2a2c5b7c MINIO_SERVER
