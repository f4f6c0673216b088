"""Short texts as a few words of 64 bits, exactly, and back."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

Ints = npt.NDArray[np.int64]
_Unsigned = npt.NDArray[np.uint64]

LONGEST: Final = 31
"""Bytes that four words hold: the first its length and seven bytes, the others eight."""
LONG: Final = 255
"""Mark in place of the length of texts that are longer."""
_FIRST: Final = 7
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def lengths_of(column: pa.Array) -> tuple[Ints, Ints, npt.NDArray[np.uint8]]:
    """Where the bytes of each text begin, their number, and the bytes; arbitrary for nulls."""
    wide = pt.is_large_string(column.type) or pt.is_large_binary(column.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    _, offsets, data = column.buffers()
    if not len(column):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, dtype, len(column) + 1, column.offset * dtype.itemsize).astype(np.int64)
    first = ends[0]
    content = (
        np.frombuffer(data, np.uint8, int(ends[-1] - first), int(first))
        if data is not None and (ends[-1] > first)
        else np.empty(0, np.uint8)
    )
    ends -= first
    return ends[:-1], np.diff(ends), content


def pack(starts: Ints, lengths: Ints, content: npt.NDArray[np.uint8]) -> list[Ints]:
    """Words of texts; for a text that is too long the first word only says so."""
    padded = np.zeros((len(content) + 31) // 8, np.uint64)
    padded.view(np.uint8)[: len(content)] = content
    short = np.where(lengths <= LONGEST, lengths, 0)
    first = load_words(padded, starts, np.minimum(short, _FIRST))
    first <<= np.uint64(8)
    first |= np.where(lengths <= LONGEST, lengths, LONG).view(np.uint64)
    words = [first.view(np.int64)]
    longest = int(short.max(initial=0))
    for packed_bytes in range(_FIRST, longest, 8):
        word = np.zeros(len(lengths), np.uint64)
        rows = np.flatnonzero(short > packed_bytes)
        word[rows] = load_words(padded, starts[rows] + packed_bytes, np.minimum(short[rows] - packed_bytes, 8))
        words.append(word.view(np.int64))
    return words


def load_words(padded: _Unsigned, starts: Ints, counts: Ints) -> _Unsigned:
    """Up to eight bytes from any position, out of the two words that hold them."""
    indices = starts >> 3
    shift = ((starts & 7) << 3).view(np.uint64)
    loaded: _Unsigned = padded.take(indices)
    loaded >>= shift
    indices += 1
    upper = padded.take(indices)
    upper <<= np.uint64(63) - shift
    upper <<= np.uint64(1)
    loaded |= upper
    loaded &= _MASKS.take(counts)
    return loaded


def unpack(words: list[Ints], data_type: pa.DataType) -> pa.Array:
    """Texts from words; empty for those that were too long."""
    count = len(words[0])
    lengths = words[0] & 255
    lengths[lengths == LONG] = 0
    matrix = np.empty((count, len(words)), np.int64)
    for position, word in enumerate(words):
        matrix[:, position] = word
    letters = matrix.view(np.uint8).reshape(count, 8 * len(words))[:, 1:]
    content = letters[np.arange(letters.shape[1]) < lengths[:, None]]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    plain = pa.string() if pt.is_string(data_type) or pt.is_large_string(data_type) else pa.binary()
    buffers: list[Any] = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    texts = pa.Array.from_buffers(plain, count, buffers)
    return texts if plain == data_type else texts.cast(data_type)
