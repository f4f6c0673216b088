"""Ports for tests that have to know one before somebody listens on it, or after."""

from __future__ import annotations

import random
import socket
from typing import Final

_CHOICE: Final = range(20_000, 32_000)
"""Below the ports that systems give to whoever asks for any (from 32768 on Linux, 49152 elsewhere)."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no process gets by chance, which makes it unlikely that one is taken."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_CHOICE, len(_CHOICE)):
        if len(found) == count:
            break
        try:
            with socket.create_server(("", port)):
                found.append(port)
        except OSError:
            continue
    return found
