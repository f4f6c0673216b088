#!/bin/sh
# Prints the folder with PostgreSQL's programs (initdb, postgres): this machine's, or those of Debian's package, which is
# installed without a cluster of its own. POSTGRESQL_BIN=/path/to/bin names another folder.
# Exit codes: 3 = there are none and none can be had here (the last line says why); others = something is broken.
set -eu

impossible() {
    echo "ensure-postgresql: $*" >&2
    exit 3
}

found() {
    for folder in ${POSTGRESQL_BIN:-} /usr/lib/postgresql/*/bin; do
        if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
            echo "$folder"
            return 0
        fi
    done
    return 1
}

found && exit
command -v apt-get >/dev/null || impossible "there is no PostgreSQL, and this is not Debian, where its package could be had"
[ "$(id -u)" = 0 ] || impossible "there is no PostgreSQL, and only root can install it"
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
export DEBIAN_FRONTEND=noninteractive
install="apt-get install -y -q --no-install-recommends postgresql"
($install || { apt-get update -q && $install; }) >&2 || impossible "Debian's package postgresql can't be installed"
found || { echo "ensure-postgresql: the package has no programs" >&2; exit 1; }
