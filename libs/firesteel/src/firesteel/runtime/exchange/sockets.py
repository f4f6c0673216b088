"""Sockets of the data plane: Unix sockets within a node, TCP between nodes.

Two processes are on one node if they share a kernel and see the directory in which a slot's socket lies: two containers
on one machine are two nodes, unless that directory is mounted in both.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from firesteel.core.errors import ConfigurationError
from firesteel.core.forks import closed_in_children
from firesteel.core.machine import boot_id

Address = Mapping[str, Any]
"""``{"unix": path, "node": id, "tcp": [host, port]}``; one of ``unix`` and ``tcp`` may be missing. Without ``node`` the
Unix socket counts as one of this node."""
SOCKET_BUFFER: Final = 512 * 1024
"""Bytes of the send buffer that a Unix socket gets; buffers of TCP are sized by the kernel itself."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}


def describe(address: Address) -> str:
    """Text for logs and errors that says how an address is reached from here, or would be."""
    if "unix" in address and ("tcp" not in address or is_on_this_node(address)):
        return f"unix:{address['unix']}"
    if "tcp" in address:
        host, port = address["tcp"]
        return f"{host}:{port}"
    return "no address"


def node_of(directory: str) -> str:
    """Name of the node, made of the kernel's boot id and the identity of a directory; empty if that can't be read."""
    try:
        status = os.stat(directory)
    except OSError:
        return ""
    return f"{boot_id()}-{status.st_dev:x}-{status.st_ino:x}"


def is_on_this_node(address: Address) -> bool:
    """Whether an address has a Unix socket, and that can be reached from here."""
    if "unix" not in address:
        return False
    node = address.get("node")
    return node is None or node == node_of(os.path.dirname(address["unix"]))


def reach(address: Address) -> Address:
    """Choose how to reach an address from here: returns ``{"unix": path}`` or ``{"tcp": [host, port]}``.

    Raises:
        ConfigurationError: it has only a Unix socket, on another node.
    """
    if is_on_this_node(address):
        return {"unix": address["unix"]}
    if "tcp" in address:
        return {"tcp": address["tcp"]}
    raise ConfigurationError(
        f"it listens at {describe(address)} only, which is on another node or gone; if it is another node, set "
        "taskmanager.bind-host and taskmanager.host of its TaskManager to an address that this one can reach"
    )


def listen_on(listen: Sequence[str]) -> tuple[list[socket.socket], dict[str, Any]]:
    """Open listening, non-blocking sockets; returns them and the address that they have together.

    Args:
        listen: ``unix:<path>``, ``tcp:<host>`` or ``tcp:<host to bind to>=<host for others>``, at most one of each.

    Raises:
        ConfigurationError: a text is malformed, or the address can't be used.
    """
    sockets: list[socket.socket] = []
    address: dict[str, Any] = {}
    try:
        for text in listen:
            scheme, _, where = text.partition(":")
            if scheme not in ("unix", "tcp") or not where or scheme in address:
                raise ConfigurationError(f"can't listen on {text!r}; give unix:<path> or tcp:<host>, once each")
            try:
                sock, part = _unix(where) if scheme == "unix" else _tcp(where)
            except OSError as error:
                raise ConfigurationError(f"can't listen on {text!r}: {error}") from error
            sockets.append(sock)
            address |= part
            sock.setblocking(False)
            sock.listen(1024)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets, address


def _unix(path: str) -> tuple[socket.socket, dict[str, Any]]:
    sock = closed_in_children(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        sock.bind(path)
        os.chmod(path, 0o600)
    except BaseException:
        sock.close()
        raise
    return sock, {"unix": path, "node": node_of(os.path.dirname(os.path.abspath(path)))}


def _tcp(where: str) -> tuple[socket.socket, dict[str, Any]]:
    bind_host, _, host = where.partition("=")
    family = socket.AF_INET6 if ":" in bind_host else socket.AF_INET
    sock = closed_in_children(socket.create_server((bind_host, 0), family=family))
    return sock, {"tcp": [host or bind_host, sock.getsockname()[1]]}


def is_numeric(host: str) -> bool:
    """Whether this is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def resolve(host: str, port: int) -> list[Address]:
    """Look up the numeric addresses of a name; may block for seconds.

    Raises:
        OSError: the name is not known.
    """
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [{"tcp": [numeric, port]} for numeric in dict.fromkeys(str(entry[4][0]) for entry in entries)]


def start_connect(address: Address) -> tuple[socket.socket, int]:
    """Begin to connect a non-blocking socket to ``{"unix": path}`` or ``{"tcp": [numeric host, port]}``.

    Returns:
        The socket, and the ``errno`` of the attempt (0: it is connected, ``EINPROGRESS``: it will be).
    """
    if "unix" in address:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = address["unix"]
    else:
        host, port = address["tcp"]
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        target = (host, port)
    sock.setblocking(False)
    closed_in_children(sock)
    try:
        return sock, sock.connect_ex(target)
    except BaseException:
        sock.close()
        raise


def tune(sock: socket.socket) -> None:
    """Set the socket options of a connection that has authenticated."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # With these a host that has vanished is noticed within half a minute: after 10 + 4 * 5 s, or 30 s of unacked data.
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
