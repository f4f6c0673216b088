"""CRC-32 of many texts at once, equal to ``zlib.crc32`` of each text.

CRC-32 is linear apart from a constant that depends on the length: each byte contributes a value that depends on the
byte and on its distance from the text's end, and all contributions are combined by exclusive or. So the texts are read
from their ends, eight bytes at a time, and each byte costs one look-up in the table of its distance (1 KiB).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

__all__ = ["crc_of_texts"]

Hashes = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]

_FEW: Final = 256
"""Number of texts; fewer are hashed faster one by one."""
_LONGEST: Final = 64
"""Length in bytes; longer texts are hashed faster one by one."""
_BLOCK: Final = 16384
"""Texts hashed per block, so that intermediate results stay in the processor's cache."""
_WORD: Final = 8
_LAST_BYTES: Final = np.array([0, *(2**64 - (1 << 64 - 8 * count) for count in range(1, 9))], np.uint64)
"""Number of bytes (0 to 8) -> mask that keeps the last bytes of a word."""


@cache
def _tables() -> tuple[npt.NDArray[np.uint32], Hashes]:
    """Contribution of a byte by its distance from the end and its value; and the constants by length."""
    constants = np.array([crc32(bytes(length)) for length in range(_LONGEST + 1)], np.uint32)
    nearest = [crc32(bytes([byte])) for byte in range(256)]
    table = np.empty((_LONGEST, 256), np.uint32)
    table[0] = np.array(nearest, np.uint32) ^ constants[1]
    for distance in range(1, _LONGEST):  # one more byte behind it: the CRC takes one step, with a zero byte
        nearer = table[distance - 1]
        table[distance] = table[0].take(nearer & np.uint32(255)) ^ (nearer >> np.uint32(8))
    return table, constants


def crc_of_texts(ends: Ints, data: Any) -> Hashes:
    """Return the CRC-32 of each text.

    Args:
        ends: where the first text begins, then where each text ends.
        data: the bytes of all texts, as an object with the buffer protocol.
    """
    count = len(ends) - 1
    if count < _FEW:
        return _each(ends[:-1], ends[1:], data)
    hashes = np.empty(count, np.uint32)
    for start in range(0, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        hashes[start:stop] = _block(ends[start : stop + 1], data)
    return hashes


def _each(starts: Ints, ends: Ints, data: Any) -> Hashes:
    view = memoryview(data)
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter((crc32(view[start:end]) for start, end in pairs), np.uint32, len(starts))


def _block(bounds: Ints, data: Any) -> Hashes:
    lengths = np.diff(bounds)
    long = np.flatnonzero(lengths > _LONGEST)
    if 2 * long.size > len(lengths):  # most texts are long: words would not pay
        return _each(bounds[:-1], bounds[1:], data)
    table, constants = _tables()
    if long.size:
        lengths[long] = 0  # hashed one by one at the end
    first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
    padded = np.zeros(size // _WORD + 3, np.uint64)  # a word in front of the texts, and the last read's excess
    padded.view(np.uint8)[_WORD : _WORD + size] = np.frombuffer(data, np.uint8, size, first)
    ends = bounds[1:] - first
    hashes = constants.take(lengths)
    longest = int(lengths.max(initial=0))
    for from_end in range(0, longest, _WORD):
        if not from_end:
            _add(hashes, padded, ends, lengths, table[: min(longest, _WORD)])
            continue
        rows = np.flatnonzero(lengths > from_end)  # the texts that reach so far
        part = hashes.take(rows)
        distances = table[from_end : min(longest, from_end + _WORD)]
        _add(part, padded, ends.take(rows) - from_end, lengths.take(rows) - from_end, distances)
        hashes[rows] = part
    if long.size:
        hashes[long] = _each(bounds[:-1].take(long), bounds[1:].take(long), data)
    return hashes


def _add(hashes: Hashes, padded: npt.NDArray[np.uint64], ends: Ints, lengths: Ints, table: Hashes) -> None:
    """Combine the contributions of the eight bytes in front of ``ends`` into ``hashes``.

    Bytes in front of a text's begin (it may have fewer than eight left) are masked to zero and contribute nothing.
    """
    at = ends >> 3
    shift = ((ends & 7) << 3).view(np.uint64)
    words = padded.take(at)  # a word stands in front of the texts, so these are bytes in front of the end
    words >>= shift
    at += 1
    upper = padded.take(at)
    upper <<= np.uint64(63) - shift
    upper <<= np.uint64(1)
    words |= upper
    words &= _LAST_BYTES.take(np.minimum(lengths, _WORD))
    letters = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _WORD)
    for distance, values in enumerate(table):
        hashes ^= values.take(letters[:, _WORD - 1 - distance])
