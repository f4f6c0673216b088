"""Connections of this process to clusters: one for each address, with the token that opens it."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from firesteel.client.at_exit import before_threads_end
from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import ClientPatience, RestClient
from firesteel.config import options
from firesteel.config.addresses import rest_address
from firesteel.config.load import CONF_DIR_VARIABLE
from firesteel.config.secret import load_secret
from firesteel.config.settings import Settings
from firesteel.core.environment import SECRET_VARIABLE
from firesteel.core.errors import ConfigurationError, PeerUnreachableError
from firesteel.core.secret import SECRET_FILE_NAME, read_secret_file, rest_token

_CONTACT_SECONDS: Final = 20.0
_NO_TOKEN: Final = (
    f"it has no token: set {options.SECRET_FILE.key} or {options.REST_TOKEN_FILE.key}, in the config.yaml that "
    f"--config-dir or FIRESTEEL_CONF_DIR leads to or with -D, or the variable {SECRET_VARIABLE}"
)


@dataclass(frozen=True)
class ClusterConnection:
    """A connection to a cluster that has answered.

    Attributes:
        rest: its REST API; lives on ``loop``.
        loop: a thread of this process.
    """

    rest: RestClient
    loop: LoopThread
    _last: list[weakref.finalize[..., Any]] = field(default_factory=list)

    def before_close(self, finalizer: weakref.finalize[..., Any]) -> None:
        """Register a finalizer that runs before the connection is closed, unless it has run by then."""
        self._last[:] = [pending for pending in self._last if pending.alive]
        self._last.append(finalizer)

    def close(self) -> None:
        """Close the REST client and end the thread of the loop."""
        for finalizer in self._last:
            finalizer()
        try:
            self.loop.run(self.rest.close(), timeout=5)
        except (TimeoutError, PeerUnreachableError):
            pass
        finally:
            self.loop.close()


@dataclass(frozen=True)
class _Token:
    text: str | None
    origin: str


class _Connections:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: dict[tuple[str, str | None], ClusterConnection] = {}
        self._variable_token: str | None = None
        self._hooked = False

    def get(self, settings: Settings) -> ClusterConnection:
        with self._lock:
            if self._pid != os.getpid():  # a forked child has none of its parent's threads
                self._pid, self._open = os.getpid(), {}
            token = self._token(settings)
            key = cluster_url(settings), token.text
            connection = self._open.get(key)
            if connection is None:
                if not self._hooked:
                    before_threads_end(self.close)
                    self._hooked = True
                connection = self._open[key] = _connect(key[0], token, settings)
            return connection

    def _token(self, settings: Settings) -> _Token:
        folder = os.environ.get(CONF_DIR_VARIABLE)
        token_file = settings.get(options.REST_TOKEN_FILE)
        if token_file is not None:
            path = Path(folder or "", token_file)
            return _Token(read_secret_file(path), f"its token is the one in {path}")
        secret_file = settings.get(options.SECRET_FILE)
        self._keep_secret(settings)
        if secret_file is None and self._variable_token is not None:
            return _Token(self._variable_token, f"its token is made from {SECRET_VARIABLE}")
        if secret_file is None and folder and Path(folder, SECRET_FILE_NAME).exists():
            secret_file = str(Path(folder, SECRET_FILE_NAME))
        if secret_file is None:
            return _Token(None, _NO_TOKEN)
        return _Token(
            rest_token(load_secret(settings, os.environ)), f"its token is made from the secret in {secret_file}"
        )

    def token(self, settings: Settings) -> str | None:
        with self._lock:
            return self._token(settings).text

    def _keep_secret(self, settings: Settings) -> None:
        if SECRET_VARIABLE in os.environ:  # loading takes it out of the environment
            self._variable_token = rest_token(load_secret(settings, os.environ))

    def keep_secret(self, settings: Settings) -> None:
        with self._lock:
            self._keep_secret(settings)

    def close(self) -> None:
        with self._lock:
            connections, self._open = list(self._open.values()), {}
        for connection in connections:
            connection.close()


_connections = _Connections()


def connect(settings: Settings) -> ClusterConnection:
    """The connection to the cluster at ``rest.address`` and ``rest.port``; made if there is none yet.

    Raises:
        PeerUnreachableError: no cluster answers there; says what to do.
        ProtocolError: something else listens there.
        UnauthorizedError: the cluster refuses the token, or wants one.
        ConfigurationError: the file of the token or of the secret can't be used.
    """
    return _connections.get(settings)


def rest_token_of(settings: Settings) -> str | None:
    """The token that opens the REST API of the cluster that is meant; None: nothing says which.

    Raises:
        ConfigurationError: the file of the token or of the secret can't be used.
    """
    return _connections.token(settings)


def keep_secret(settings: Settings) -> None:
    """Take the cluster's secret out of the environment, so that no program and no child of this process finds it there.

    Connections that are made later still know it.

    Raises:
        ConfigurationError: it is no good.
    """
    _connections.keep_secret(settings)


def close_connections() -> None:
    """Close all connections of this process; the next use makes new ones."""
    _connections.close()


def cluster_url(settings: Settings) -> str:
    """Where the settings say that the cluster's REST API is.

    Raises:
        ConfigurationError: they do not say.
    """
    if settings.get(options.REST_PORT) == 0:
        raise ConfigurationError(f"{options.REST_PORT.key} is 0 (any port): say which, or -m host:port.")
    return rest_address(settings)


def _connect(url: str, token: _Token, settings: Settings) -> ClusterConnection:
    patience = ClientPatience(
        settings.get(options.CLIENT_TIMEOUT).total_seconds(), settings.get(options.CLIENT_RETRY_PERIOD).total_seconds()
    )
    connection = ClusterConnection(
        RestClient(url, token.text, token_origin=token.origin, patience=patience), LoopThread("firesteel-client")
    )
    try:
        connection.loop.run(connection.rest.contact(), timeout=_CONTACT_SECONDS)
    except (PeerUnreachableError, TimeoutError) as error:
        connection.close()
        reason = str(error).rpartition("did not answer: ")[2] or "no answer in time"
        raise PeerUnreachableError(
            f"no cluster answers at {url} ({reason}): start one with start-cluster.sh, say where one is with "
            "-m host:port (rest.address, rest.port), or run the program in a cluster of its own with `firesteel run "
            "-t local`"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection
