"""Where the keytab of the user is, on the host of this process."""

from __future__ import annotations

import os
from typing import Final

from firesteel.config import options
from firesteel.config.settings import Settings

KEYTAB_VARIABLE: Final = "KRB5_CLIENT_KTNAME"
"""MIT's own, of processes that have been given a keytab: ``FILE:/path``."""


def login_keytab(settings: Settings) -> str | None:
    """``security.kerberos.login.keytab``; rather the one that this process was given, as in containers."""
    named = settings.get(options.KERBEROS_KEYTAB)
    process_keytab = os.environ.get(KEYTAB_VARIABLE, "").removeprefix("FILE:")
    if named is not None and process_keytab and os.path.exists(process_keytab):
        return process_keytab
    return named
