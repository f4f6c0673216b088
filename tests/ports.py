"""Ports for tests that have to know one before somebody listens on it, or after."""

from __future__ import annotations

import os
import random
import re
import socket
from typing import Final

_CHOICE: Final = range(20_000, 32_000)
"""Below the ports that systems give to whoever asks for any (from 32768 on Linux, 49152 elsewhere)."""

_WORKERS: Final = 12


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, that no process gets by chance, and that no other worker of tests chooses."""
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    own = _CHOICE[worker % _WORKERS :: _WORKERS]
    found: list[int] = []
    for port in random.SystemRandom().sample(own, len(own)):
        if len(found) == count:
            break
        try:
            with socket.create_server(("", port)):
                found.append(port)
        except OSError:
            continue
    return found
