"""In-band elements as bytes and back. The end of the input has a frame kind of its own."""

from __future__ import annotations

import json
import struct
from collections import deque
from typing import Any, Final, TypeGuard

from firesteel.core.errors import ProtocolError
from firesteel.runtime.records.batch import Barrier, CancelBarrier, EndOfInput, InBand, LatencyMarker, Watermark

_WATERMARK: Final = struct.Struct("<BBq")
"""Kind (1), idle, timestamp; its origin follows in UTF-8."""
_LONGEST_ORIGIN: Final = 300
"""Bytes of an origin that are sent: it may hold the path of a file, and goes to each channel with each watermark."""
_WATERMARK_KIND: Final = 1
_BARRIER: Final = struct.Struct("<Bqq")
"""Kind (2), checkpoint, timestamp; its options follow as JSON."""
_BARRIER_KIND: Final = 2
_CANCEL: Final = struct.Struct("<Bq")
"""Kind (3), checkpoint."""
_CANCEL_KIND: Final = 3
_LATENCY: Final = struct.Struct("<BIq")
"""Kind (4), subtask of the source, when it was marked; the id of the source's vertex follows in UTF-8."""
_LATENCY_KIND: Final = 4


def dump_element(element: InBand) -> bytes:
    """Encode an element; the first byte tells its kind."""
    if isinstance(element, Watermark):
        origin = element.origin.encode("utf-8", "backslashreplace")[:_LONGEST_ORIGIN]
        return _WATERMARK.pack(_WATERMARK_KIND, element.idle, element.timestamp) + origin
    if isinstance(element, Barrier):
        options = json.dumps(element.options, separators=(",", ":")).encode()
        return _BARRIER.pack(_BARRIER_KIND, element.checkpoint_id, element.timestamp) + options
    if isinstance(element, CancelBarrier):
        return _CANCEL.pack(_CANCEL_KIND, element.checkpoint_id)
    if isinstance(element, LatencyMarker):
        return _LATENCY.pack(_LATENCY_KIND, element.subtask, element.marked_ms) + element.source.encode()
    raise TypeError(f"{element!r} has no form on the wire")  # our own bug


def load_element(data: memoryview, peer: str) -> InBand:
    """Decode the bytes that ``dump_element`` has made.

    Raises:
        ProtocolError: the bytes are of no kind that this release knows, or of a wrong length.
    """
    if len(data) >= _WATERMARK.size and data[0] == _WATERMARK_KIND and data[1] in (0, 1):
        _, idle, timestamp = _WATERMARK.unpack_from(data)
        return Watermark(timestamp, bool(idle), str(data[_WATERMARK.size :], "utf-8", "ignore"))
    if len(data) > _BARRIER.size and data[0] == _BARRIER_KIND:
        _, checkpoint_id, timestamp = _BARRIER.unpack_from(data)
        return Barrier(checkpoint_id, timestamp, _options(data[_BARRIER.size :], peer))
    if len(data) == _CANCEL.size and data[0] == _CANCEL_KIND:
        return CancelBarrier(_CANCEL.unpack(data)[1])
    if len(data) > _LATENCY.size and data[0] == _LATENCY_KIND:
        _, subtask, marked_ms = _LATENCY.unpack_from(data)
        return LatencyMarker(str(data[_LATENCY.size :], "utf-8", "ignore"), subtask, marked_ms)
    raise ProtocolError(peer, f"in-band element of unknown kind, {len(data)} bytes: {bytes(data[:8]).hex()}")


def _options(data: memoryview, peer: str) -> dict[str, Any]:
    try:
        options = json.loads(bytes(data))
    except ValueError as error:
        raise ProtocolError(peer, f"the options of a barrier are not JSON: {error}") from error
    if not isinstance(options, dict):
        raise ProtocolError(peer, f"the options of a barrier are {type(options).__name__}, not an object")
    return options


def supersedes(element: InBand, before: Any) -> bool:
    """Whether an element replaces the one right before it, with no record between them: the last watermark counts."""
    return isinstance(element, Watermark) and isinstance(before, Watermark)


def may_overtake(element: Any) -> TypeGuard[Barrier | EndOfInput]:
    """Whether an item of a queue is the end of the input, or a barrier that may overtake, now or after a timeout."""
    return isinstance(element, EndOfInput) or (isinstance(element, Barrier) and element.overtakes_at < float("inf"))


def append_element(queue: deque[Any], element: InBand) -> bool:
    """Append an element to a queue of batches and elements, or let it replace the last one if that is superseded.

    A latency marker is dropped if one of the same source waits already behind the last records: that has come earlier.
    Without this the queue of a reader that stands still would grow with every watermark and marker.

    Returns:
        Whether the queue has grown.
    """
    if isinstance(element, LatencyMarker) and _waits(queue, element):
        return False
    try:
        if supersedes(element, queue[-1]):
            queue[-1] = element
            return False
    except IndexError:  # the queue is empty: its reader, perhaps in another thread, may just have taken the last item
        pass
    queue.append(element)
    return True


def _waits(queue: deque[Any], marker: LatencyMarker) -> bool:
    """Whether a marker of the same source stands among the elements at the end of a queue."""
    position = -1
    try:
        while isinstance(item := queue[position], InBand):
            if marker.is_like(item):
                return True
            position -= 1
    except IndexError:  # its reader, perhaps in another thread, may just have taken the first items
        pass
    return False
