"""Which keys hold secrets, by their names, and texts without the secrets in them."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "******"

_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "api_key",
    "auth-params",
    "service-key",
    "account.key",
    "account-key",
    "access-key",
    "access.key",
    "access_key",
    "private-key",
    "private.key",
    "private_key",
    "basic-auth",
    "basic.auth",
    "jaas",
    "http-headers",
    "credential",
    "connection-string",
)
_USER_OF_URL = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*(?=@)")


def is_sensitive(key: str) -> bool:
    """Whether a key's name says that its value is a secret."""
    lower = key.lower()
    return any(word in lower for word in _WORDS)


def masked_arguments(words: Iterable[str]) -> list[str]:
    """Arguments of a program as people may see them.

    Masked are the values of ``--db-password value``, ``--db-password=value``, ``-Ddb.password=value`` and
    ``db.password=value``, and user and password in a URL. A word behind a sensitive flag that is a flag itself stays.
    """
    shown: list[str] = []
    value_is_secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        if value_is_secret and not word.startswith("-"):
            shown.append(MASK)
            value_is_secret = False
            continue
        value_is_secret = not equals and word.startswith("-") and is_sensitive(word)
        if equals and is_sensitive(name):
            shown.append(f"{name}={MASK}")
        else:
            shown.append(_USER_OF_URL.sub(MASK, word))
    return shown
