"""Decimal numbers with a fixed number of digits: checked, rounded, in columns, JSON, CSV and state."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from firesteel.common import Types
from firesteel.common.coerce import make_coercer
from firesteel.common.typeinfo import DecimalTypeInfo
from firesteel.connectors.formats.csv_schema import CsvSchema
from firesteel.connectors.formats.csv_values import RowReader, RowWriter
from firesteel.connectors.formats.json_rows import json_parser, json_printer
from firesteel.core.errors import TypeMismatchError
from firesteel.expressions.schema import arrow_type, type_info_of
from firesteel.expressions.values import column_of, values_of
from firesteel.state.schema import SchemaCompatibility, compare, schema_of

PRICE = DecimalTypeInfo(6, 2)
ROW = Types.ROW_NAMED(["id", "price"], [Types.INT(), PRICE])


def test_a_decimal_type_is_a_value() -> None:
    assert PRICE == DecimalTypeInfo(6, 2) != DecimalTypeInfo(6, 3)
    assert pickle.loads(pickle.dumps(PRICE)) == PRICE
    assert str(PRICE) == "DECIMAL(6, 2)"
    for precision, scale in ((0, 0), (39, 0), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="the precision is from 1 to 38"):
            DecimalTypeInfo(precision, scale)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.005", "1.01"), ("-1.005", "-1.01"), ("7", "7.00"), ("9999.99", "9999.99"), ("0", "0.00")],
)
def test_a_number_is_rounded_to_its_digits(value: str, expected: str) -> None:
    coerce = make_coercer(PRICE)
    assert coerce is not None
    assert str(coerce(Decimal(value))) == expected
    assert make_coercer(ROW)((1, Decimal(value)))[1] == Decimal(expected)  # type: ignore[misc]


@pytest.mark.parametrize("value", [Decimal("10000"), Decimal("9999.995"), Decimal("NaN"), "1.5", None.__class__])
def test_a_number_with_too_many_digits_is_refused(value: Any) -> None:
    coerce = make_coercer(PRICE)
    assert coerce is not None
    with pytest.raises(TypeMismatchError):
        coerce(value)


def test_columns_are_arrows_decimals() -> None:
    assert arrow_type(PRICE) == pa.decimal128(6, 2)
    assert type_info_of(pa.decimal128(6, 2)) == PRICE
    values = [Decimal("1.50"), None, Decimal("-9999.99")]
    assert values_of(column_of(values, "price", PRICE)) == values


def test_json_and_csv_read_and_write_it() -> None:
    parse = json_parser(ROW, fail_on_missing_field=False)
    assert [tuple(parse(line)) for line in (b'{"id": 1, "price": 1.005}', b'{"id": 2, "price": "7"}')] == [
        (1, Decimal("1.01")), (2, Decimal("7.00")),
    ]  # fmt: skip
    assert tuple(parse(b'{"id": 1, "price": null}')) == (1, None)
    with pytest.raises(ValueError, match="does not fit DECIMAL"):
        parse(b'{"id": 1, "price": 10000}')
    assert json_printer(ROW)((1, Decimal("1.50"))) == b'{"id":1,"price":1.50}'
    schema = CsvSchema(ROW)
    assert tuple(RowReader(schema)(["1", "1.005"])) == (1, Decimal("1.01"))
    assert RowWriter(schema) is not None


def test_state_of_it_can_be_widened() -> None:
    old = schema_of(PRICE)
    wider = compare(old, schema_of(DecimalTypeInfo(8, 3)))
    assert wider.answer is SchemaCompatibility.MIGRATE
    assert wider.convert is not None
    assert str(wider.convert(Decimal("1.50"))) == "1.500"
    for narrower in (DecimalTypeInfo(5, 2), DecimalTypeInfo(8, 1), DecimalTypeInfo(6, 3)):
        assert compare(old, schema_of(narrower)).answer is SchemaCompatibility.INCOMPATIBLE
