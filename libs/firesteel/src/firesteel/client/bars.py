"""Progress bars in one line of text, and bytes whose sending they show."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from typing_extensions import override

_WIDTH: Final = 20


def bar(done: int, total: int) -> str:
    """A bar with the share in percent, such as ``[##########..........]  50 %``; empty if the total is not known."""
    if total <= 0:
        return ""
    share = min(max(done / total, 0.0), 1.0)
    filled = int(share * _WIDTH)  # full at the very end only
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {int(share * 100):3} %"


class CountedBytes(io.BytesIO):
    """Bytes to send in pieces; sent as ``bytes`` they would hold up the loop, and aiohttp warns about it.

    Args:
        content: the bytes.
        count: hears how many were read at once.
    """

    def __init__(self, content: bytes, count: Callable[[int], None]) -> None:
        super().__init__(content)
        self._count = count

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size)
        self._count(len(part))
        return part
