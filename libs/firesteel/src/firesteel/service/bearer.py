"""Tokens that people and their programs carry: ``Authorization: Bearer ...``."""

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
    """Knows requests by their token.

    Args:
        tokens: any of them opens everything.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._accepted = [f"Bearer {token}".encode() for token in tokens]

    def is_known(self, request: web.Request) -> bool:
        """Whether a request has a token that opens everything; its connection is none of a stranger then."""
        if not any(self._matches(request)):
            return False
        authenticated(request)
        return True

    def caller(self, request: web.Request) -> str:
        """Who a request's token says is asking, for the log; the last token is the one made from the cluster secret."""
        matches = self._matches(request)
        if not any(matches):
            return "a caller without a token"
        source = options.SECRET_FILE if matches[-1] else options.REST_TOKEN_FILE
        return f"the holder of the token of {source.key}"

    def _matches(self, request: web.Request) -> list[bool]:
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        return [hmac.compare_digest(given, accepted) for accepted in self._accepted]  # all: time tells nothing


def tokens_of(settings: Settings, secret: str, config_directory: str | os.PathLike[str] | None) -> tuple[str, ...]:
    """The tokens that open the REST API: that of the token file, and the one that is made from the secret.

    Raises:
        ConfigurationError: the file can't be used.
    """
    made, path = rest_token(secret), settings.get(options.REST_TOKEN_FILE)
    return (made,) if path is None else (read_secret_file(Path(config_directory or "") / path), made)
