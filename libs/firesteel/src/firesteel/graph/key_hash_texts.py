"""CRC-32 of many texts at once: what ``zlib.crc32`` gives for each of them.

CRC-32 is linear but for a constant of the length: each byte counts with what a table says for it and for its distance
from the end, and all of that is combined by exclusive or. So texts are read from their ends in words of eight bytes,
and each byte costs one look into a table of a kibibyte, whichever text it is of.
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
"""Texts; fewer are quicker one by one."""
_LONGEST: Final = 64
"""Bytes; longer texts are quicker one by one."""
_BLOCK: Final = 16384
"""Texts that are worked on at once, so that what is in between stays in the processor's cache."""
_WORD: Final = 8
_KEPT: Final = np.array([0, *(2**64 - (1 << 64 - 8 * count) for count in range(1, 9))], np.uint64)
"""Masks of so many of a word's last bytes."""


@cache
def _tables() -> tuple[npt.NDArray[np.uint32], Hashes]:
    """What a byte counts for, by its distance from the end and itself; and the constants by length."""
    constants = np.array([crc32(bytes(length)) for length in range(_LONGEST + 1)], np.uint32)
    nearest = [crc32(bytes([byte])) for byte in range(256)]
    table = np.empty((_LONGEST, 256), np.uint32)
    table[0] = np.array(nearest, np.uint32) ^ constants[1]
    for distance in range(1, _LONGEST):  # one zero byte more behind it
        before = table[distance - 1]
        table[distance] = table[0].take(before & np.uint32(255)) ^ (before >> np.uint32(8))
    return table, constants


def crc_of_texts(ends: Ints, data: Any) -> Hashes:
    """The CRC-32 of each text.

    Args:
        ends: where the first one begins, and where each of them ends.
        data: the bytes of all of them; what supports the buffer protocol.
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
    if 2 * long.size > len(lengths):
        return _each(bounds[:-1], bounds[1:], data)
    table, constants = _tables()
    if long.size:
        lengths[long] = 0
    first, size = int(bounds[0]), int(bounds[-1] - bounds[0])
    padded = np.zeros(size // _WORD + 3, np.uint64)  # a word in front of the texts, and what a word at the end reads
    padded.view(np.uint8)[_WORD : _WORD + size] = np.frombuffer(data, np.uint8, size, first)
    ends = bounds[1:] - first
    hashes = constants.take(lengths)
    longest = int(lengths.max(initial=0))
    for done in range(0, longest, _WORD):
        if not done:
            _add(hashes, padded, ends, lengths, table[: min(longest, _WORD)])
            continue
        rows = np.flatnonzero(lengths > done)
        part = hashes.take(rows)
        _add(part, padded, ends.take(rows) - done, lengths.take(rows) - done, table[done : min(longest, done + _WORD)])
        hashes[rows] = part
    if long.size:
        hashes[long] = _each(bounds[:-1].take(long), bounds[1:].take(long), data)
    return hashes


def _add(hashes: Hashes, padded: npt.NDArray[np.uint64], ends: Ints, lengths: Ints, table: Hashes) -> None:
    """Let the eight bytes in front of ``ends`` count, as far as they are of the text."""
    at = ends >> 3
    shift = ((ends & 7) << 3).view(np.uint64)
    words = padded.take(at)  # a word stands in front of the texts, so these are bytes in front of the end
    words >>= shift
    at += 1
    upper = padded.take(at)
    upper <<= np.uint64(63) - shift
    upper <<= np.uint64(1)
    words |= upper
    words &= _KEPT.take(np.minimum(lengths, _WORD))
    letters = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _WORD)
    for distance, values in enumerate(table):
        hashes ^= values.take(letters[:, _WORD - 1 - distance])
