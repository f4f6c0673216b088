"""Counts the bytes of columns that the framework copies; slices, projections and what is received make views instead.

One counter for each process: tests hold what moves against it.
"""

from __future__ import annotations

from typing import Final


class Copies:
    """See the module.

    Attributes:
        bytes: running total.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


COPIES: Final = Copies()
