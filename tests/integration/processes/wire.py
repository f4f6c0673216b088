"""Reads along on the loopback device, as somebody could who listens to the network."""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import threading
from collections.abc import Collection
from types import TracebackType

_ALL_PROTOCOLS = 0x0003
_ATTACH_FILTER = 26
_ROOM = 64 << 20
_LONGEST = 0x40000


class Listener:
    """Everything that is sent from or to some TCP ports of this machine (IPv4), in the order of the packets.

    Args:
        ports: which.

    Raises:
        PermissionError: only root may listen.
    """

    def __init__(self, ports: Collection[int]) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        code = _only(ports)
        program = ctypes.create_string_buffer(code)
        self._socket.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(code) // 8, ctypes.addressof(program))
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        self._socket.bind(("lo", 0))
        self._heard = bytearray()
        self._wake, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._listen, name="listener")
        self._thread.start()

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([self._socket.fileno(), self._wake], [], [])
            if self._wake in ready:
                return
            self._heard += self._socket.recv(_LONGEST)

    def heard(self) -> bytes:
        """All packets so far, headers included."""
        return bytes(self._heard)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._stop)
        self._thread.join()
        os.close(self._wake)
        self._socket.close()


def _only(ports: Collection[int]) -> bytes:
    """A program of the kernel's packet filter: TCP over IPv4 with one of these ports at either end."""
    load_half, load_byte, load_half_at_x, header_length, equal, accept = 0x28, 0x30, 0x48, 0xB1, 0x15, 0x06
    watched_ports = sorted(ports)
    checks = [(where, port) for where in (14, 16) for port in watched_ports]
    head = [(load_half, 0, 0, 12), (equal, 0, 255, 0x0800), (load_byte, 0, 0, 23), (equal, 0, 255, 6)]
    head.append((header_length, 0, 0, 14))
    body: list[tuple[int, int, int, int]] = []
    for where, port in checks:
        body += [(load_half_at_x, 0, 0, where), (equal, 254, 0, port)]
    lines = [*head, *body, (accept, 0, 0, 0), (accept, 0, 0, _LONGEST)]
    no, yes = len(lines) - 2, len(lines) - 1
    operations = []
    for number, (operation, hit, miss, value) in enumerate(lines):
        hit = yes - number - 1 if hit == 254 else hit
        miss = no - number - 1 if miss == 255 else miss
        operations.append(struct.pack("HBBI", operation, hit, miss, value))
    return b"".join(operations)
