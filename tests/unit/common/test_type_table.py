"""The table of types: each row has each column, or says why not, and values come back from every use."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.common import Instant, Row
from firesteel.common import type_table as table
from firesteel.common.coerce import make_coercer
from firesteel.common.printing import text_of
from firesteel.common.type_table import SCALARS, WITH_PARTS, Absent, PartsRow, ScalarRow, Shape, row_of, unwrapped
from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    PrimitiveArrayTypeInfo,
    TypeInformation,
    Types,
)
from firesteel.connectors.formats.csv_columns import column_reader
from firesteel.connectors.formats.csv_rows import CsvRowDeserializationSchema, CsvRowSerializationSchema
from firesteel.connectors.formats.json_rows import exact_parser, json_parser, json_printer
from firesteel.core.errors import GraphError, TypeMismatchError, UnsupportedFeatureError
from firesteel.datastream.checks import key_type
from firesteel.expressions.schema import FILE, arrow_type, type_info_of
from firesteel.expressions.texts import _type as source_of
from firesteel.expressions.values import column_of, field_of, values_of
from firesteel.state.fitting import make_fit
from firesteel.state.schema import SchemaCompatibility, compare, schema_of
from firesteel.table import from_type_info, to_type_info
from firesteel_jdbc.values import CONVERTS
from tests.examples import examples
from tests.unit.expressions.strategies import PLAIN, same

LOCAL = LocalTimeTypeInfo.TimeType
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{row_of(type_info).name: values for type_info, values in PLAIN},
    "INSTANT": st.integers(-(10**9), 2**33).map(lambda second: Instant(second, 123_456_000)),
}
VALUES["LOCAL_DATE"], VALUES["LOCAL_TIME"] = VALUES["SQL_DATE"], VALUES["SQL_TIME"]
SAMPLES: dict[str, tuple[TypeInformation, Any]] = {
    "PRIMITIVE_ARRAY": (Types.PRIMITIVE_ARRAY(Types.INT()), [1, 2]),
    "BASIC_ARRAY": (Types.BASIC_ARRAY(Types.INT()), [1, None]),
    "OBJECT_ARRAY": (Types.OBJECT_ARRAY(Types.BIG_DEC()), [Decimal("1.50"), None]),
    "LIST": (Types.LIST(Types.SQL_DATE()), []),
    "MAP": (Types.MAP(Types.INT(), Types.STRING()), {1: "a", 2: None}),
    "ROW": (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.BIG_INT()]), Row(a=1, b=10**30)),
    "TUPLE": (Types.TUPLE([Types.BOOLEAN(), Types.STRING()]), (True, None)),
    "PICKLED_BYTE_ARRAY": (Types.PICKLED_BYTE_ARRAY(), {"any": [1]}),
}
NAMES = dict(vars(table), Types=Types, LocalTimeTypeInfo=LocalTimeTypeInfo, ListTypeInfo=ListTypeInfo)
scalars = pytest.mark.parametrize("row", SCALARS, ids=lambda row: row.name)
with_parts = pytest.mark.parametrize("row", WITH_PARTS, ids=lambda row: row.name)


class UnknownTypeInfo(TypeInformation):
    def __str__(self) -> str:
        return "UnknownTypeInfo"


def test_each_type_that_can_be_declared_has_a_row() -> None:
    declared: list[TypeInformation] = [BasicTypeInfo(basic) for basic in BasicType]
    declared += [LocalTimeTypeInfo(kind) for kind in LOCAL]
    declared += [getattr(Types, name)() for name in ("SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP", "PICKLED_BYTE_ARRAY")]
    declared += [type_info for type_info, _ in SAMPLES.values()]
    names = {row_of(type_info).name for type_info in declared}
    assert names | {"BYTES", "UNKNOWN"} == {row.name for row in table.TYPES}
    assert len(table.TYPES) == len({row.name for row in table.TYPES})
    leaves: list[type[TypeInformation]] = [TypeInformation]
    for cls in leaves:  # classes of the library; those that tests derive are as their base
        leaves += [subclass for subclass in cls.__subclasses__() if subclass.__module__.startswith("firesteel.common.")]
    public = {cls for cls in leaves[1:] if not cls.__subclasses__() or cls in (BasicTypeInfo, PrimitiveArrayTypeInfo)}
    of_rows = {row.type_info if isinstance(row.type_info, type) else type(row.type_info) for row in table.TYPES}
    without = {ExternalTypeInfo, DecimalTypeInfo}  # the latter makes a row for its digits: test_decimal_type.py
    assert public - of_rows == without, "a class of type information without a row"


def test_what_a_row_lacks_has_a_reason() -> None:
    cells = [(row.name, name, cell) for row in table.TYPES for name, cell in vars(row).items()]
    absent = {(row, name): cell.reason for row, name, cell in cells if isinstance(cell, Absent)}
    assert all(len(reason.split()) > 3 for reason in absent.values())
    assert {row for row, name in absent if name == "sql"} == {"PICKLED_BYTE_ARRAY", "UNKNOWN"}
    may_lack = {"bits", "widen", "file_arrow", "form"}  # None means something there
    assert [(row, name) for row, name, cell in cells if cell is None and name not in may_lack] == []
    assert set(CONVERTS) == {row.name for row in SCALARS if row.bits is None}


@scalars
def test_a_row_stands_for_its_type(row: ScalarRow) -> None:
    assert row_of(row.type_info) is row
    assert eval(row.source, NAMES) == row.type_info
    assert source_of(row.type_info) == row.source
    assert schema_of(row.type_info) == row.schema == json.loads(json.dumps(row.schema))
    assert [other.name for other in SCALARS if other.schema == row.schema] == [row.name]
    sql = from_type_info(row.type_info)
    assert (sql.name, sql.parameters) == row.sql
    for name in row.sql_names:
        assert to_type_info(replace(sql, name=name)) == row.type_info
    assert arrow_type(type_info_of(arrow_type(row.type_info))) == arrow_type(row.type_info)


@scalars
@settings(max_examples=examples(12))
@given(data=st.data())
def test_scalars_come_back_from_every_use(row: ScalarRow, data: st.DataObject) -> None:
    declared, value = row.type_info, data.draw(VALUES[row.name])
    coerce, fit = make_coercer(declared, strict_integers=True), make_fit("state", declared, strict_integers=False)
    quick = make_coercer(Types.TUPLE([declared, declared]))
    assert coerce is not None
    assert fit is not None
    assert quick is not None
    pair = (value, None)
    for fitted in (coerce(value), row.coerce(value), fit(value), quick(pair)[0]):
        assert fitted is value or math.isnan(value), "what fits is not made anew"
        assert same(fitted, value)
    with pytest.raises(TypeMismatchError):
        coerce(object())

    printable = value if row.form != "instant" else Instant(value.seconds, value.nanos // 1000 * 1000)
    assert same(row.parse(row.text(printable)), printable)
    assert same(row.parse(row.csv_text(printable)), printable)
    assert text_of(declared)(value) == row.print(value)

    assert same(values_of(column_of([value, None], "v", declared), field_of("v", declared)), [value, None])
    if row.form == "decimal" or (row.form == "integer" and abs(value) >= 10**38):
        return  # files hold fewer digits
    assert column_of([value], "v", declared, FILE).type == arrow_type(declared, FILE)


@scalars
@settings(max_examples=examples(12))
@given(data=st.data())
def test_json_and_csv_give_scalars_back_in_each_of_their_ways(row: ScalarRow, data: st.DataObject) -> None:
    value = data.draw(VALUES[row.name])
    row_type = Types.ROW_NAMED(["n", "v"], [Types.INT(), row.type_info])
    csv = CsvRowSerializationSchema.Builder(row_type).build().serialize((1, value))
    assert same(CsvRowDeserializationSchema.Builder(row_type).build().deserialize(csv)[1], value)
    if isinstance(value, float) and not math.isfinite(value):
        return  # JSON has no such numbers
    text = json_printer(row_type)((1, value))
    for parser in (json_parser, exact_parser):
        assert same(parser(row_type, fail_on_missing_field=True)(text)[1], value)
        assert parser(row_type, fail_on_missing_field=False)(b"{}")[1] is None
    if row.name != "STRING":  # keys of maps are texts in JSON
        keyed = Types.MAP(row.type_info, Types.INT())
        printed = json_printer(keyed)({value: 1})
        for parser in (json_parser, exact_parser):
            ((key, item),) = parser(keyed, fail_on_missing_field=False)(printed).items()
            assert item == 1
            assert same(key, value)


@scalars
@settings(max_examples=examples(12))
@given(data=st.data())
def test_arrow_reads_and_writes_texts_as_python_does(row: ScalarRow, data: st.DataObject) -> None:
    value = data.draw(VALUES[row.name])
    reader = column_reader(row.type_info)
    assert (reader is None) == isinstance(row.arrow_parses, Absent)
    text = row.csv_text(value)
    if reader is not None and not (isinstance(value, float) and not math.isfinite(value)):
        column = reader(pa.array([text, None], pa.string()))
        assert same(values_of(column, field_of("v", row.type_info)), [row.parse(text), None])
    if row.arrow_prints:
        assert column_of([value], "v", row.type_info).cast(pa.string()).to_pylist() == [text]


@scalars
@settings(max_examples=examples(12))
@given(data=st.data())
def test_wider_types_hold_each_value(row: ScalarRow, data: st.DataObject) -> None:
    value = data.draw(VALUES[row.name])
    for other in SCALARS:
        answer = compare(row.schema, other.schema)
        if other is row:
            assert answer.answer is SchemaCompatibility.AS_IS
        elif other.name not in row.wider:
            assert answer.answer is SchemaCompatibility.INCOMPATIBLE
        else:
            assert answer.answer is SchemaCompatibility.MIGRATE
            widened = value if answer.convert is None else answer.convert(value)
            coerce = make_coercer(other.type_info, strict_integers=True)
            assert coerce is not None
            assert coerce(widened) is widened
            assert widened == value or math.isnan(value)


@scalars
def test_scalars_are_keys_or_say_why_not(row: ScalarRow) -> None:
    for declared in (row.type_info, ExternalTypeInfo(row.type_info), Types.TUPLE([Types.INT(), row.type_info])):
        if row.name != "INSTANT":
            assert key_type(declared) is declared
            continue
        with pytest.raises(GraphError, match="is no type of keys: take the milliseconds"):
            key_type(declared)


@with_parts
def test_types_with_parts_come_back_from_every_use(row: PartsRow) -> None:
    if row.shape is Shape.UNKNOWN:
        return
    declared, value = SAMPLES[row.name]
    coerce = make_coercer(declared)
    assert row_of(declared) is row
    assert unwrapped(ExternalTypeInfo(declared)) is declared
    assert eval(source_of(declared), NAMES) == declared
    assert (coerce is None) == (row.shape is Shape.ANY)
    assert coerce is None or coerce(value) is value
    assert compare(schema_of(declared), schema_of(ExternalTypeInfo(declared))).answer is SchemaCompatibility.AS_IS
    assert schema_of(declared)["type"] == row.schema
    assert text_of(declared)(None) == "null"
    text = json_printer(declared)(value)
    for parser in (json_parser, exact_parser):
        assert same(parser(declared, fail_on_missing_field=True)(text), value)
    if row.shape is Shape.ANY:
        assert arrow_type(declared) is None
        with pytest.raises(UnsupportedFeatureError, match="declare the fields"):
            from_type_info(declared)
    else:
        assert same(values_of(column_of([value, None], "v", declared), field_of("v", declared)), [value, None])
        assert (from_type_info(declared).name, ()) == row.sql
    if row.no_key:
        for key in (declared, ExternalTypeInfo(declared)):
            with pytest.raises(GraphError, match=r"values can change: use Types\.TUPLE"):
                key_type(key)
    else:
        assert key_type(declared) is declared


def test_types_that_are_not_there_are_refused_or_left_alone() -> None:
    unknown = UnknownTypeInfo()
    assert row_of(unknown) is table.UNKNOWN
    assert schema_of(unknown) == {"type": "other", "of": "UnknownTypeInfo"}
    assert arrow_type(Types.LIST(unknown)) is None
    assert text_of(unknown)(5) == "5"
    with pytest.raises(TypeError, match=r"can't be fitted to the type UnknownTypeInfo \(UnknownTypeInfo\)"):
        make_coercer(unknown)
    with pytest.raises(TypeError, match="values of type UnknownTypeInfo can't be read from JSON"):
        json_parser(Types.LIST(unknown), fail_on_missing_field=False)
    with pytest.raises(TypeError, match="values of type UnknownTypeInfo can't be written as JSON"):
        json_printer(unknown)
    with pytest.raises(TypeError, match="values of type UnknownTypeInfo can't be read from CSV"):
        CsvRowDeserializationSchema.Builder(Types.ROW([unknown])).build()
    with pytest.raises(TypeError, match="values of type UnknownTypeInfo can't be written as CSV"):
        CsvRowSerializationSchema.Builder(Types.ROW([unknown])).build()
    with pytest.raises(UnsupportedFeatureError, match="no type of SQL"):
        from_type_info(unknown)


def test_an_empty_text_is_a_text_inside_a_type_of_the_table_api_too() -> None:
    row_type = Types.ROW_NAMED(["n", "s"], [Types.INT(), ExternalTypeInfo(Types.STRING())])
    schema = CsvRowDeserializationSchema.Builder(row_type).build()
    batch = schema.deserialize_columns([b"1,"])
    assert batch is not None
    assert batch.to_pylist() == [{"n": 1, "s": ""}] == [schema.deserialize(b"1,").as_dict()]
