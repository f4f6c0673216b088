"""Ports for tests that have to know one before somebody listens on it, or after."""

from __future__ import annotations

import random
import socket
from functools import cache
from typing import Final

_CHOICE: Final = range(20_000, 32_000)
"""Below the ports that systems give to whoever asks for any (from 32768 on Linux, 49152 elsewhere)."""

_BLOCK: Final = 100
"""Ports of which one process of tests disposes: others know by the first of them, on which it listens."""


class _Block:
    """Ports that nobody but this process gives to its tests, in turn: none comes again while another is left."""

    def __init__(self) -> None:
        starts = list(_CHOICE[::_BLOCK])
        random.SystemRandom().shuffle(starts)
        for start in starts:
            try:
                self._door = socket.create_server(("", start), backlog=1)
            except OSError:
                continue
            self._left = list(range(start + 1, start + _BLOCK))
            return
        raise AssertionError("no block of ports is free: too many runs of tests at once")

    def take(self) -> int:
        """The next port on which nobody listens."""
        for _ in range(len(self._left)):
            port = self._left.pop(0)
            self._left.append(port)
            try:
                socket.create_server(("", port)).close()
            except OSError:
                continue
            return port
        raise AssertionError("this process of tests uses all its ports")


@cache
def _own() -> _Block:
    return _Block()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, that no process gets by chance, and that no other run of tests chooses.

    Raises:
        AssertionError: there are none.
    """
    return [_own().take() for _ in range(count)]
