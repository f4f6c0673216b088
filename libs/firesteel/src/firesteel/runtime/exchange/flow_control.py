"""Flow control: windows of channels. They are small by themselves, and wider where whole batches of columns need it."""

from __future__ import annotations

from typing import Final

MESSAGES_IN_FLIGHT: Final = 3
"""A window has room for so many messages of columns, so that neither end waits for the other."""


class WideWindows:
    """What all channels of a slot together may have in flight beyond the window that each of them has anyway.

    Args:
        total: bytes.

    Attributes:
        left: bytes that no channel has taken.
    """

    def __init__(self, total: int) -> None:
        self.left = total

    def widen(self, window: int, message: int) -> int:
        """A window for messages of this size: as it is, or wider as far as there are bytes left."""
        more = min(max(0, MESSAGES_IN_FLIGHT * message - window), self.left)
        self.left -= more
        return window + more

    def give_back(self, extra: int) -> None:
        """A channel was closed."""
        self.left += extra
