"""Contents of rows: hashes, equality, and changes that cancel each other.

All NaN are equal, 0.0 equals -0.0, NULL equals NULL, and the order of a map's entries is of no account: a deleted row
has to meet the row that was inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.state.columnar.hash_table import hash_words
from firesteel.state.columnar.key_columns import is_fixed, key_column
from firesteel.state.columnar.nested_bytes import bytes_of
from firesteel.state.columnar.packed_text import lengths_of, load_words
from firesteel.state.columnar.slot_lists import runs, spread

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NULL: Final = np.uint64(0x51ED270B0A1F3A5D)
_TURN: Final = np.uint64(23)
_REST: Final = np.uint64(41)


def is_text(data_type: pa.DataType) -> bool:
    """Whether values are texts or bytes with offsets of 32 bits."""
    return bool(data_type in (pa.string(), pa.binary()))


def is_wide(data_type: pa.DataType) -> bool:
    """Whether values are numbers of 16 or 32 bytes."""
    return bool(pt.is_decimal128(data_type) or pt.is_decimal256(data_type))


def wide_numbers(column: pa.Array) -> npt.NDArray[Any]:
    """The bytes of wide numbers, one element each; arbitrary for nulls."""
    size = column.type.bit_width // 8
    return np.frombuffer(column.buffers()[1], f"V{size}", len(column), column.offset * size)


def content_hashes(columns: Sequence[pa.Array]) -> Ints:
    """A hash of 64 bits of each row."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        part = _hashes(column).view(np.uint64)
        if column.null_count:
            part = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, part)
        hashes = (hashes << _TURN | hashes >> _REST) ^ part
        hashes = hash_words([hashes.view(np.int64)])
    return hashes.view(np.int64)


def _hashes(column: pa.Array) -> npt.NDArray[Any]:
    if not len(column):
        return np.zeros(0, np.int64)
    if is_fixed(column.type) and column.type != pa.float16():
        return hash_words(key_column(column.type).words(column, add=False))
    if is_text(column.type):
        return _text_hashes(column)
    if is_wide(column.type):
        words = wide_numbers(column).view(np.int64).reshape(len(column), -1)
        return hash_words([np.ascontiguousarray(words[:, part]) for part in range(words.shape[1])])
    if pt.is_nested(column.type):
        return _text_hashes(bytes_of(column))
    return np.fromiter((hash(repr(value)) for value in column.to_pylist()), np.int64, len(column))


def _text_hashes(column: pa.Array) -> npt.NDArray[np.uint64]:
    starts, lengths, content = lengths_of(column)
    padded = np.zeros((len(content) + 31) // 8, np.uint64)
    padded.view(np.uint8)[: len(content)] = content
    hashes = hash_words([lengths])
    rows = np.flatnonzero(lengths)
    at = 0
    while rows.size:
        words = load_words(padded, starts[rows] + at, np.minimum(lengths[rows] - at, 8))
        mixed = hashes[rows]
        mixed = (mixed << _TURN | mixed >> _REST) ^ words
        hashes[rows] = hash_words([mixed.view(np.int64)])
        at += 8
        rows = rows[lengths[rows] > at]
    return hashes


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Mask:
    """Where rows of equal columns are equal."""
    equal = np.ones(len(left[0]), bool)
    for left_column, right_column in zip(left, right, strict=True):
        equal &= _equal(left_column, right_column)
    return equal


def _equal(left: pa.Array, right: pa.Array) -> Mask:
    data_type = left.type
    if not len(left):
        return np.ones(0, bool)
    if is_fixed(data_type) and data_type != pa.float16():
        handler = key_column(data_type)
        same = handler.words(left, add=False)[0] == handler.words(right, add=False)[0]
    elif is_text(data_type) or is_wide(data_type):
        same = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
    elif pt.is_nested(data_type):
        same = pc.equal(bytes_of(left), bytes_of(right)).fill_null(False).to_numpy(zero_copy_only=False)
    else:
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        same = np.fromiter((repr(a) == repr(b) for a, b in pairs), bool, len(left))
    if left.null_count or right.null_count:
        left_nulls, right_nulls = (part.is_null().to_numpy(zero_copy_only=False) for part in (left, right))
        same = np.where(left_nulls | right_nulls, left_nulls & right_nulls, same)
    return np.asarray(same, bool)


def consolidated(columns: Sequence[pa.Array], weights: Ints) -> Ints | None:
    """Positions of the rows that stay when equal rows of opposite weights cancel each other; None = all.

    Of equal rows that are inserted more often than deleted the last ones stay, and of others the first.
    """
    is_inserted = weights > 0
    if is_inserted.all() or not is_inserted.any():
        return None
    contents = content_hashes(columns)
    order = np.argsort(contents, kind="stable")
    starts, counts = runs(contents[order])
    sums = np.add.reduceat(weights[order], starts)
    mixed = np.flatnonzero(np.abs(sums) < counts)
    if not mixed.size:
        return None
    rows, firsts = spread(starts[mixed], counts[mixed]), np.repeat(starts[mixed], counts[mixed])
    if not equal_rows(*([column.take(pa.array(order[at])) for column in columns] for at in (rows, firsts))).all():
        # Different rows have one hash, which happens to one of 2 ** 64 pairs: compare all of them.
        numbers: dict[str, int] = {}
        texts = map(repr, zip(*[column.to_pylist() for column in columns], strict=True))
        contents = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
        order = np.argsort(contents, kind="stable")
        starts, counts = runs(contents[order])
        sums = np.add.reduceat(weights[order], starts)
    group = np.repeat(np.arange(len(starts)), counts)
    sign = is_inserted[order]
    # The number of each row among those of its group and sign.
    code = group * 2 + sign
    by_code = np.argsort(code, kind="stable")
    code_starts, code_counts = runs(code[by_code])
    number, of_sign = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    number[by_code] = spread(np.zeros(len(code_starts), np.int64), code_counts)
    of_sign[by_code] = np.repeat(code_counts, code_counts)
    net = sums[group]
    stays = np.where(sign, number >= of_sign - net, number < -net)
    return np.sort(order[stays])
