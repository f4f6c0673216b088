"""Tokens of users and their programs: ``Authorization: Bearer ...``."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from firesteel.config import Settings, options
from firesteel.core.secret import read_secret_file, rest_token
from firesteel.service.connections import authenticated


class BearerTokens:
    """Checks the tokens of requests.

    Args:
        tokens: accepted tokens, which have equal rights.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._accepted = [f"Bearer {token}".encode() for token in tokens]

    def is_known(self, request: web.Request) -> bool:
        """Whether a request has an accepted token; its connection is no stranger's then."""
        if not any(self._matches(request)):
            return False
        authenticated(request)
        return True

    def caller(self, request: web.Request) -> str:
        """The caller by the token of a request, for the log; the last token is the one made from the cluster secret."""
        matches = self._matches(request)
        if not any(matches):
            return "a caller without a token"
        source = options.SECRET_FILE if matches[-1] else options.REST_TOKEN_FILE
        return f"the holder of the token of {source.key}"

    def _matches(self, request: web.Request) -> list[bool]:
        header = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        # All tokens are compared, so that the time of the answer tells nothing.
        return [hmac.compare_digest(header, accepted) for accepted in self._accepted]


def tokens_of(settings: Settings, secret: str, config_directory: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """The tokens of the REST API: that of the token file, and the token made from the cluster secret.

    Raises:
        ConfigurationError: the file can't be used.
    """
    secret_token, path = rest_token(secret), settings.get(options.REST_TOKEN_FILE)
    return (secret_token,) if path is None else (read_secret_file(Path(config_directory or "") / path), secret_token)
