"""Counts the bytes of columns that the framework copies; slices, projections and received batches should be views.

There is one counter for each process; tests compare it with the bytes that were moved.
"""

from __future__ import annotations

from typing import Final


class Copies:
    """The counter.

    Attributes:
        bytes: running total of bytes copied.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


COPIES: Final = Copies()
