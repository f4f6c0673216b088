"""``RuntimeExecutionMode``: how a program with bounded input is run."""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How a program is run; ``AUTOMATIC`` runs as ``STREAMING`` in this version, ``BATCH`` is refused."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"
