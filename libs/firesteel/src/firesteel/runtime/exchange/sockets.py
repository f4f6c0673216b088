"""Sockets of the data plane: Unix on one host, TCP else."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final

from firesteel.core.errors import ConfigurationError

Address = Mapping[str, Any]
"""``{"unix": path}`` or ``{"tcp": [host, port]}``."""
SOCKET_BUFFER: Final = 512 * 1024
"""Bytes asked of the kernel for a Unix socket; it sizes those of TCP itself."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


def describe(address: Address) -> str:
    """For logs and errors."""
    if "unix" in address:
        return f"unix:{address['unix']}"
    if "tcp" in address:
        host, port = address["tcp"]
        return f"{host}:{port}"
    return "no address"


def listen_on(listen: str) -> tuple[socket.socket, Address]:
    """A listening, non-blocking socket and its address.

    Raises:
        ConfigurationError: the text is malformed, or the address can't be used.
    """
    scheme, _, where = listen.partition(":")
    if scheme not in ("unix", "tcp") or not where:
        raise ConfigurationError(f"can't listen on {listen!r}; give unix:<path> or tcp:<host>")
    try:
        if scheme == "unix":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.bind(where)
                os.chmod(where, 0o600)
            except BaseException:
                sock.close()
                raise
            address: dict[str, Any] = {"unix": where}
        else:
            family = socket.AF_INET6 if ":" in where else socket.AF_INET
            sock = socket.create_server((where, 0), family=family)
            address = {"tcp": [where, sock.getsockname()[1]]}
    except OSError as error:
        raise ConfigurationError(f"can't listen on {listen!r}: {error}") from error
    sock.setblocking(False)
    sock.listen(1024)
    return sock, address


def start_connect(address: Address) -> tuple[socket.socket, int]:
    """A non-blocking socket on its way to an address, and the ``errno`` of the attempt (0: it is connected)."""
    if "unix" in address:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = address["unix"]
    else:
        host, port = address["tcp"]
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        target = (host, port)
    sock.setblocking(False)
    try:
        return sock, sock.connect_ex(target)
    except BaseException:
        sock.close()
        raise


def tune(sock: socket.socket) -> None:
    """Settings of a connection that is up."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():  # a host that vanished is noticed within half a minute
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
