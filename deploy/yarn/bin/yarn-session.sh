#!/bin/sh
# A session cluster on YARN, as Flink's yarn-session.sh: `yarn-session.sh -d -jm 1600m -tm 2g -s 2`. HADOOP_CONF_DIR says
# where YARN is; FIRESTEEL_PYTHON names the Python of an environment with Firesteel (default: that of `firesteel`).
set -eu
if [ -n "${FIRESTEEL_PYTHON:-}" ]; then
    exec "$FIRESTEEL_PYTHON" -P -m firesteel yarn-session "$@"
fi
command -v firesteel >/dev/null || {
    echo "yarn-session.sh: there is no firesteel on the PATH; set FIRESTEEL_PYTHON to a Python that has it" >&2
    exit 2
}
exec firesteel yarn-session "$@"
