"""In-band elements as bytes and back. The end of the input has a frame kind of its own."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final

from firesteel.core.errors import ProtocolError
from firesteel.runtime.batch import InBand, Watermark

_WATERMARK: Final = struct.Struct("<BBq")
"""Kind (1), idle, timestamp."""
_WATERMARK_KIND: Final = 1


def dump_element(element: InBand) -> bytes:
    """An element as bytes; the first one tells its kind."""
    if isinstance(element, Watermark):
        return _WATERMARK.pack(_WATERMARK_KIND, element.idle, element.timestamp)
    raise TypeError(f"{element!r} has no form on the wire")  # our own bug


def load_element(data: memoryview, peer: str) -> InBand:
    """The inverse of ``dump_element``.

    Raises:
        ProtocolError: the bytes are no element that is known here.
    """
    if len(data) == _WATERMARK.size and data[0] == _WATERMARK_KIND and data[1] in (0, 1):
        _, idle, timestamp = _WATERMARK.unpack(data)
        return Watermark(timestamp, bool(idle))
    raise ProtocolError(peer, f"in-band element of unknown kind, {len(data)} bytes: {bytes(data[:8]).hex()}")


def supersedes(element: InBand, before: Any) -> bool:
    """Whether an element makes the one right before it (no record between them) needless."""
    return isinstance(element, Watermark) and isinstance(before, Watermark)


def append_element(queue: deque[Any], element: InBand) -> bool:
    """Append to a queue of batches and elements, in place of an element that it supersedes.

    Without this the queue of a reader that stands still would grow with every watermark. Returns whether the queue has
    grown.
    """
    if queue and supersedes(element, queue[-1]):
        queue[-1] = element
        return False
    queue.append(element)
    return True
