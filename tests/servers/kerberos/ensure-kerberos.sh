#!/bin/sh
# Sees to it that MIT's Kerberos is here: krb5kdc, kdb5_util, kadmin.local, kinit. Root on Debian installs it; nothing
# is started by that.
# Exit codes: 3 = it is not here and can't be had (the last line says why); others = something is broken.
set -eu
PATH=$PATH:/usr/sbin:/sbin

impossible() {
    echo "ensure-kerberos: $*" >&2
    exit 3
}

for program in krb5kdc kdb5_util kadmin.local kinit; do
    if ! command -v $program >/dev/null; then
        [ "$(id -u)" = 0 ] || impossible "there is no $program, and only root can install it"
        command -v apt-get >/dev/null || impossible "there is no $program, and this is not Debian"
        apt-get update -q >&2 || impossible "the lists of Debian's packages can't be fetched"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
            krb5-kdc krb5-admin-server krb5-user >&2 || impossible "Debian's packages can't be installed"
    fi
done
