"""Nested values as bytes: equal where the values are, and the values come back."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from firesteel.state.columnar.nested_bytes import bytes_of, values_of
from firesteel.state.columnar.row_contents import content_hashes, equal_rows

_NUMBERS = pa.map_(pa.string(), pa.float64())
_ROW = pa.struct([
    ("a", pa.list_(pa.int16())), ("m", _NUMBERS), ("d", pa.decimal128(10, 2)), ("t", pa.timestamp("us")),
    ("b", pa.bool_()), ("z", pa.null()), ("day", pa.date32()), ("s", pa.list_(pa.struct([("x", pa.binary())]))),
])  # fmt: skip
COLUMNS = {
    "list": ([[1, None], [], None, [1], [None, 1]], pa.list_(pa.int64())),
    "texts": ([["a", "b"], ["ab"], ["", "ab"], [None]], pa.list_(pa.string())),
    "bools": ([[True, None, False], [False] * 9], pa.list_(pa.bool_())),
    "map": ([[("b", 1.5), ("a", None)], [], None], _NUMBERS),
    "lists of lists": ([[[1], None, []], [[1, 2]], [[], [1]]], pa.list_(pa.list_(pa.int32()))),
    "row": (
        [
            {
                "a": [3], "m": [("k", 2.0)], "d": Decimal("-12345678.25"), "t": datetime(2020, 1, 1, 1, 2, 3, 4),
                "b": True, "z": None, "day": date(1969, 12, 31), "s": [{"x": b"\x00"}, None],
            },
            dict.fromkeys(["a", "m", "d", "t", "b", "z", "day", "s"]),
            None,
        ],
        _ROW,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_values_come_back_also_from_a_part_of_a_column(name: str) -> None:
    values, data_type = COLUMNS[name]
    column = pa.array(values, data_type)
    for part in (column, column.slice(1), column.slice(0, 1), column.slice(0, 0)):
        encoded = bytes_of(part)
        decoded = values_of(encoded, data_type)
        decoded.validate(full=True)
        expected = [sorted(value) if value and name == "map" else value for value in part.to_pylist()]
        assert decoded.to_pylist() == expected
        assert len(set(encoded.to_pylist())) == len(part)


@pytest.mark.parametrize(
    ("one", "other", "data_type"),
    [
        ([("a", 1.0), ("b", 2.0)], [("b", 2.0), ("a", 1.0)], _NUMBERS),
        ([math.nan, None], [-math.nan, None], pa.list_(pa.float32())),
        ([0.0], [-0.0], pa.list_(pa.float64())),
        ({"x": [("k", 0.0)]}, {"x": [("k", -0.0)]}, pa.struct([("x", _NUMBERS)])),
    ],
)
def test_equal_values_have_equal_bytes(one: Any, other: Any, data_type: pa.DataType) -> None:
    left, right = pa.array([one], data_type), pa.array([other], data_type)
    assert bytes_of(left) == bytes_of(right)
    assert equal_rows([left], [right]).all()
    assert content_hashes([left]) == content_hashes([right])
