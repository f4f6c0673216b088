"""Access to the REST API: which requests need a token."""

from __future__ import annotations

from aiohttp import web

from firesteel.config import Settings, options
from firesteel.config.addresses import is_loopback
from firesteel.core.errors import ConfigurationError, UnauthorizedError
from firesteel.core.refusals import RefusalLog
from firesteel.service.bearer import BearerTokens


class RestAccess(BearerTokens):
    """Refuses requests that need a token and have none.

    Args:
        tokens: accepted tokens, which have equal rights.
        all_paths: whether every path needs a token; else only those that change the cluster or bring results.
        refusals: where refused peers are logged.
        cancel_is_free: jobs can be cancelled without a token, as those of an embedded cluster can, whose token nobody
            knows but its program.
    """

    def __init__(
        self, tokens: tuple[str, ...], all_paths: bool, refusals: RefusalLog, cancel_is_free: bool = False
    ) -> None:
        super().__init__(tokens)
        self.cancel_is_free = cancel_is_free and not all_paths
        self.all_paths, self._refusals = all_paths, refusals

    def check(self, request: web.Request) -> None:
        """Let a request pass that has an accepted token.

        Raises:
            UnauthorizedError: the token is missing or wrong.
        """
        if self.is_known(request):
            return
        fault = "is wrong" if request.headers.get("Authorization") else "is missing"
        needed = "every request" if self.all_paths else "what changes the cluster or brings results"
        self._refusals.refused(
            request.remote or "?", f"{request.method} {request.path[:100]!r}: the token {fault}", fault
        )
        raise UnauthorizedError(
            f"The token {fault}: {needed} needs Authorization: Bearer with the token of {options.REST_TOKEN_FILE.key}, "
            f"or, where that is not set, with the one that is made from {options.SECRET_FILE.key}."
        )


def check_binding(settings: Settings, host: str, key: str = options.REST_BIND_ADDRESS.key) -> None:
    """Refuse to open the REST API to other hosts without a token.

    Args:
        settings: may name a token file.
        host: address to bind to.
        key: of the option that names the address.

    Raises:
        ConfigurationError: the API would be open; the text says what to set.
    """
    if (
        is_loopback(host)
        or settings.is_set(options.REST_TOKEN_FILE)
        or settings.get(options.REST_ALLOW_UNAUTHENTICATED)
    ):
        return
    raise ConfigurationError(
        f"{key} = {host} would open the REST API to other hosts, and whoever reaches it "
        f"could read what jobs do: set {options.REST_TOKEN_FILE.key} to a file of mode 0600 with a token, or "
        f"{options.REST_ALLOW_UNAUTHENTICATED.key}: true if the network is safe."
    )
