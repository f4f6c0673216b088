"""Exact sums of DECIMAL columns by slot: 128 bits in four words of 32, each in a column of state."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

WORDS: Final = 4
_WORD: Final = (1 << 32) - 1
_LARGEST: Final = 10**38 - 1


def words_of(column: pa.Array) -> list[Ints]:
    """The words of a DECIMAL column's numbers without their scale, lowest first; only the highest has a sign.

    Nulls give arbitrary words.
    """
    start = column.offset * WORDS
    words = np.frombuffer(column.buffers()[1], "<u4")[start : start + len(column) * WORDS].reshape(-1, WORDS)
    lower = [words[:, place].astype(np.int64) for place in range(WORDS - 1)]
    return [*lower, words[:, WORDS - 1].astype(np.int32).astype(np.int64)]


def carried(words: list[Ints]) -> list[Ints]:
    """The same numbers with lower words between 0 and 2**32."""
    words = list(words)
    for place in range(WORDS - 1):
        words[place + 1] = words[place + 1] + (words[place] >> 32)
        words[place] = words[place] & _WORD
    return words


def column_of(words: list[Ints], scale: int, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """A DECIMAL(38, scale) column of numbers; NULL where one has more than 38 digits."""
    highest = words[WORDS - 1]
    fits = (highest >= -(1 << 31)) & (highest < 1 << 31)
    packed = np.empty((len(highest), WORDS), "<u4")
    for place, word in enumerate(words):
        packed[:, place] = (word & _WORD).astype(np.uint32)
    # 10**38 has 127 bits: only numbers whose highest word is near that of 10**38 need a look.
    for row in np.flatnonzero(fits & (np.abs(highest) >= _LARGEST >> 96)).tolist():
        number = sum(int(word[row]) << (32 * place) for place, word in enumerate(words))
        fits[row] = abs(number) <= _LARGEST
    bits = pa.array(valid & fits).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(highest), [bits, pa.py_buffer(packed.tobytes())])
