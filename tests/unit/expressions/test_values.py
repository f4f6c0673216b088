"""Python's values as columns and back: exact, or an error that names the field."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.common.time import Instant
from firesteel.common.typeinfo import TypeInformation, Types
from firesteel.common.types import Row, RowKind
from firesteel.core.errors import TypeMismatchError
from firesteel.expressions.schema import arrow_type, uncolumnar
from firesteel.expressions.values import column_of, field_of, fitted, values_of
from firesteel.runtime.records.columns import StreamColumns
from firesteel.runtime.records.rows import to_records
from tests.unit.expressions.strategies import same, typed


@given(data=st.data())
def test_all_types_come_back_as_they_were(data: st.DataObject) -> None:
    type_info, values = data.draw(typed())
    given_values = data.draw(st.lists(values, max_size=6))
    column, field = column_of(given_values, "a", type_info), field_of("a", type_info)
    assert column.type == field.type == arrow_type(type_info)
    assert same(values_of(column, field), given_values)
    start = data.draw(st.integers(0, len(given_values)))
    assert same(values_of(column.slice(start, 2), field), given_values[start : start + 2])
    order = data.draw(st.permutations(range(len(given_values))))
    assert same(values_of(column.take(pa.array(order, pa.int64())), field), [given_values[i] for i in order])


@given(data=st.data())
def test_records_come_back_from_batches_that_travelled(data: st.DataObject) -> None:
    fields = data.draw(st.lists(typed(), min_size=1, max_size=4))
    types, parts = [type_info for type_info, _ in fields], st.tuples(*[part for _, part in fields])
    rows = data.draw(st.lists(parts, max_size=5))
    names = [f"c{i}" for i in range(len(types))]
    for type_info, records in (
        (Types.TUPLE(types), rows),
        (Types.ROW_NAMED(names, types), [Row(**dict(zip(names, row, strict=True))) for row in rows]),
    ):
        batch = StreamColumns(type_info).from_records(records)
        schema = pa.ipc.read_schema(pa.py_buffer(batch.schema.serialize()))
        there = pa.ipc.read_record_batch(batch.serialize(), schema)
        assert there.schema.equals(batch.schema, check_metadata=True)
        assert same(to_records(there), records)


@pytest.mark.parametrize(
    ("type_info", "value", "reason"),
    [
        (Types.INT(), 2**31, "too large"),
        (Types.LONG(), 2**63, "too large"),
        (Types.BIG_INT(), 10**76, "76 digits"),
        (Types.STRING(), "\ud800", "surrogates"),
        (Types.INSTANT(), Instant(0, 1), "microsecond"),
        (Types.INSTANT(), Instant(2**62, 0), "overflow|too big|large|convert"),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "time zone"),
        (Types.SQL_TIME(), datetime.time(1, tzinfo=datetime.UTC), "time zone"),
        (Types.LIST(Types.BYTE()), [1, 300], "too large"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": "b"}, "(?i)integer|convert"),
        (Types.ROW([Types.INT()]), Row.of_kind(RowKind.DELETE, 1), "kind -D"),
        (Types.TUPLE([Types.INT(), Types.INT()]), (1, 2, 3), "shorter|longer"),
        (Types.DOUBLE(), "x", "(?i)convert|double"),
    ],
)
def test_what_does_not_fit_names_the_field(type_info: TypeInformation, value: Any, reason: str) -> None:
    columns = StreamColumns(Types.ROW_NAMED(["fine", "odd"], [Types.INT(), type_info]))
    with pytest.raises(TypeMismatchError, match=reason) as caught:
        columns.from_records([Row(fine=1, odd=None), Row(fine=2, odd=value)])
    assert caught.value.field == "odd"
    assert caught.value.declared == str(type_info)


def test_rows_that_change_others_stay_rows() -> None:
    columns = StreamColumns(Types.ROW([Types.INT()]))
    with pytest.raises(TypeMismatchError, match=r"-U\[1\]|columns hold rows of the kind"):
        columns.from_records([Row.of_kind(RowKind.UPDATE_BEFORE, 1)])


def test_python_objects_have_no_columns() -> None:
    pickled = Types.PICKLED_BYTE_ARRAY()
    for type_info in (pickled, Types.LIST(pickled), Types.MAP(Types.INT(), pickled), Types.TUPLE([pickled])):
        assert arrow_type(type_info) is None
        assert "'a'" in str(uncolumnar(Types.ROW_NAMED(["a"], [type_info])))


def test_columns_of_others_are_brought_to_the_type() -> None:
    def given_as(values: list[Any], data_type: pa.DataType, type_info: TypeInformation) -> list[Any]:
        column_type = arrow_type(type_info)
        assert column_type is not None
        return values_of(fitted(pa.array(values, data_type), column_type), field_of("a", type_info))

    assert given_as([Decimal("1.50"), None], pa.decimal128(5, 2), Types.BIG_DEC()) == [Decimal("1.50"), None]
    assert given_as([7], pa.int64(), Types.BIG_DEC()) == [Decimal(7)]
    assert given_as(["1e3"], pa.string(), Types.BIG_DEC()) == [Decimal("1e3")]
    assert given_as([2**63 - 1], pa.int64(), Types.BIG_INT()) == [2**63 - 1]
    assert given_as([5], pa.timestamp("ms", tz="Asia/Tokyo"), Types.INSTANT()) == [Instant(0, 5_000_000)]
    assert given_as([[1, None]], pa.large_list(pa.int32()), Types.LIST(Types.LONG())) == [[1, None]]
    assert given_as(["x", "x"], pa.dictionary(pa.int8(), pa.string()), Types.STRING()) == ["x", "x"]
    for values, data_type, type_info in (
        (["x1"], pa.string(), Types.BIG_DEC()),
        ([math.inf], pa.float64(), Types.BIG_DEC()),
        ([5], pa.timestamp("us"), Types.INSTANT()),
        ([5], pa.timestamp("us", tz="UTC"), Types.SQL_TIMESTAMP()),
        ([5], pa.timestamp("ns"), Types.SQL_TIMESTAMP()),
    ):
        with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
            given_as(values, data_type, type_info)
