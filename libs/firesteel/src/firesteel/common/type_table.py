"""The table of types: a row for each type that programs declare, a column for each use that is made of its values.

Values of a declared type are checked, printed, put into columns of Arrow, JSON, CSV and snapshots of state, and named
in SQL. What a *scalar* type does in each place is a cell of its row. A type with parts (rows, tuples, maps, arrays)
says what its parts are; each use then has one case for each ``Shape``, and puts together what it has for the parts.

A new scalar type is a new row: ``tests/unit/common/test_type_table.py`` takes it through every use. A use that a type
does not have is ``Absent``, with the reason. A plug-in keeps its own column, a dict by the name of the row, as
``firesteel_jdbc.values`` does; the test says which rows it lacks.

Nothing here loads Arrow: a type of Arrow is the name of the function of ``pyarrow`` that makes it, and its arguments.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec

from firesteel.common import coerce_scalars as coercers
from firesteel.common import json_scalars as json
from firesteel.common import value_texts as texts
from firesteel.common.json_scalars import JsonCell
from firesteel.common.time import Instant
from firesteel.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)

Coercer = Callable[[Any], Any]
Convert = Callable[[Any], Any]
ArrowName = tuple[Any, ...]
"""A function of ``pyarrow`` and its arguments, such as ``("timestamp", "us")``."""
LONGEST: Final = 0x7FFFFFFF
"""Length of SQL's texts and bytes of any length."""


class Shape(Enum):
    """How values of a type are built."""

    SCALAR = "scalar"
    LIST = "list"
    MAP = "map"
    ROW = "row"
    TUPLE = "tuple"
    ANY = "any"
    """Any Python object: nothing is known of it."""
    UNKNOWN = "unknown"
    """The type is of a class that the table does not have."""


@dataclass(frozen=True)
class Absent:
    """A use that a type does not have, and why."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class TypeRow:
    """What is known of a type.

    Attributes:
        name: as ``Types`` has it, or Java's of local dates and times.
        type_info: the type; of types with parts their class.
        source: Python that makes the type, or of types with parts what is called with them.
        schema: of the values in snapshots of state, as plain data (``state.schema``); of types with parts its kind.
        sql: the name and parameters of SQL's type for the values.
        no_key: why values are no keys, behind ``... is no type of keys``; empty = they can be.
    """

    name: str
    shape: Shape
    type_info: Any
    source: str
    schema: Any
    sql: tuple[str, tuple[int, ...]] | Absent
    no_key: str = ""


@dataclass(frozen=True, kw_only=True)
class ScalarRow(TypeRow):
    """A type without parts.

    Attributes:
        sql_names: SQL's types whose values have this type.
        bits: of integers with a range.
        python_class: class of values that need no coercion.
        fits: what else such a value ``{v}`` has to be, as Python's text; empty = nothing.
        coerce: makes a value of the type of what a user's function returned (``common.coerce``).
        coerce_strictly: the same where integers out of range are errors.
        wider: names of the types that hold each value of this one without loss.
        widen: makes a value of this type of one of a narrower type; None = it is the same for Python.
        print: the text that ``print()`` shows of a value.
        parse: reads a value in JSON or CSV, or a key of JSON.
        text: writes a value, or a key, in JSON.
        csv_text: writes a value in CSV.
        json: how values stand in JSON.
        arrow: type of columns of streams, which hold each value exactly.
        file_arrow: type of columns of files, where that is another one.
        form: what Arrow's values stand for, in metadata of columns; None = they are the values.
        arrow_parses: texts that Arrow reads as ``parse`` does: ``text``, ``integer``, ``floating``, ``boolean``,
            ``moment``.
        arrow_prints: whether Arrow writes the same text in CSV.
        csv_quoted: whether values are put in quotes in CSV, where needed.
        csv_empty: whether an empty field of CSV is a value, not null.
    """

    sql_names: tuple[str, ...] = ()
    bits: int | None = None
    python_class: type
    fits: str = ""
    coerce: Coercer
    coerce_strictly: Coercer
    wider: tuple[str, ...] = ()
    widen: Convert | None = None
    print: texts.Text = str
    parse: texts.Parse
    text: texts.Text = str
    csv_text: texts.Text = str
    json: JsonCell
    arrow: ArrowName
    file_arrow: ArrowName | None = None
    form: str | None = None
    arrow_parses: str | Absent
    arrow_prints: bool = False
    csv_quoted: bool = True
    csv_empty: bool = False


@dataclass(frozen=True, kw_only=True)
class PartsRow(TypeRow):
    """A type with parts, or one of which nothing is known.

    Attributes:
        parts: the types of the parts.
        null_elements: of lists: whether an element may be null.
    """

    parts: Callable[[Any], tuple[TypeInformation, ...]] = lambda type_info: ()
    null_elements: bool = True


_NO_KEY: Final = ", as its values can change: use Types.TUPLE or Types.ROW"
_NO_SQL: Final = Absent("declare the fields, such as with Types.ROW_NAMED")


def _basic(name: str, *, coerce: Coercer, coerce_strictly: Coercer | None = None, **cells: Any) -> ScalarRow:
    """A row of one of ``BasicType``."""
    return ScalarRow(
        name=name, shape=Shape.SCALAR, type_info=getattr(Types, name)(), source=f"Types.{name}()",
        schema={"type": "basic", "of": name}, coerce=coerce, coerce_strictly=coerce_strictly or coerce, **cells,
    )  # fmt: skip


def _integer(name: str, sql: str, bits: int, wider: tuple[str, ...]) -> ScalarRow:
    declared, half = getattr(Types, name)(), 1 << (bits - 1)
    return _basic(
        name, sql=(sql, ()), sql_names=(sql,), bits=bits, python_class=int,
        fits=f"{-half:#x} <= {{v}} <= {half - 1:#x}",
        coerce=coercers.integer_coercer(declared, bits, strict=False),
        coerce_strictly=coercers.integer_coercer(declared, bits, strict=True), wider=wider,
        parse=texts.integer_parser(bits), json=json.integer_cell(bits),
        arrow=(f"int{bits}",), arrow_parses="integer", arrow_prints=True, csv_quoted=False,
    )  # fmt: skip


def _moment(name: str, type_info: TypeInformation, source: str, **cells: Any) -> ScalarRow:
    """A row of a date, time or timestamp without a time zone."""
    return ScalarRow(
        name=name, shape=Shape.SCALAR, type_info=type_info, source=source,
        schema={"type": "other", "of": str(type_info)}, coerce_strictly=cells["coerce"], text=texts.iso_text,
        json=json.text_cell(cells["parse"], texts.iso_text), **cells,
    )  # fmt: skip


def _date(*names: Any, sql_names: tuple[str, ...] = ()) -> ScalarRow:
    return _moment(
        *names, sql=("DATE", ()), sql_names=sql_names, python_class=datetime.date,
        coerce=coercers.date_coercer(names[1]), parse=texts.date,
        csv_text=texts.iso_text, arrow=("date32",), arrow_parses="moment",
    )  # fmt: skip


def _time(*names: Any, sql_names: tuple[str, ...] = ()) -> ScalarRow:
    return _moment(
        *names, sql=("TIME", (0,)), sql_names=sql_names, python_class=datetime.time,
        coerce=coercers.instance_coercer(names[1], datetime.time), parse=texts.time,
        csv_text=texts.sql_text, arrow=("time64", "us"),
        arrow_parses=Absent("nobody has compared how Arrow and Python read times of day"),
    )  # fmt: skip


def _timestamp(*names: Any, sql_names: tuple[str, ...] = ()) -> ScalarRow:
    return _moment(
        *names, sql=("TIMESTAMP", (3,)), sql_names=sql_names, python_class=datetime.datetime,
        coerce=coercers.instance_coercer(names[1], datetime.datetime), parse=texts.timestamp,
        csv_text=texts.sql_text, arrow=("timestamp", "us"), arrow_parses="moment",
    )  # fmt: skip


_LOCAL: Final = LocalTimeTypeInfo.TimeType
_BYTES: Final = Types.PRIMITIVE_ARRAY(Types.BYTE())
_BIG: Final = ("BIG_INT", "BIG_DEC")

SCALARS: Final[tuple[ScalarRow, ...]] = (
    _basic(
        "STRING", sql=("VARCHAR", (LONGEST,)), sql_names=("CHAR", "VARCHAR"), python_class=str,
        coerce=coercers.coerce_string, parse=str,
        json=JsonCell(str, None, json.read_string, json.write_instance_of(str)),
        arrow=("string",), arrow_parses="text", arrow_prints=True, csv_empty=True,
    ),
    _basic(
        "CHAR", sql=("CHAR", (1,)), python_class=str, fits=r"len({v}) == 1 and {v} <= '\uffff'",
        coerce=coercers.coerce_char, wider=("STRING",), parse=texts.character,
        json=replace(json.text_cell(texts.character, str), write=json.write_instance_of(str)),
        arrow=("string",), arrow_parses=Absent("Arrow does not see whether it is one character"), arrow_prints=True,
    ),
    _basic(
        "BOOLEAN", sql=("BOOLEAN", ()), sql_names=("BOOLEAN",), python_class=bool, coerce=coercers.coerce_boolean,
        print=texts.boolean_text, parse=texts.boolean, text=texts.boolean_text, csv_text=texts.boolean_text,
        json=json.boolean_cell(texts.boolean), arrow=("bool_",), arrow_parses="boolean", arrow_prints=True,
        csv_quoted=False,
    ),
    _integer("BYTE", "TINYINT", 8, ("SHORT", "INT", "LONG", *_BIG, "FLOAT", "DOUBLE")),
    _integer("SHORT", "SMALLINT", 16, ("INT", "LONG", *_BIG, "FLOAT", "DOUBLE")),
    _integer("INT", "INT", 32, ("LONG", *_BIG, "DOUBLE")),
    _integer("LONG", "BIGINT", 64, _BIG),
    _basic(
        "FLOAT", sql=("FLOAT", ()), sql_names=("FLOAT",), python_class=float, fits="float32({v}).value == {v}",
        coerce=coercers.coerce_float, wider=("DOUBLE",), widen=float, print=texts.float_text,
        parse=texts.float32_number, text=texts.float_text, csv_text=texts.java_float_text,
        json=json.number_cell(
            float, texts.to_float, json.number_to_float, texts.float32_number, json.write_float
        ),
        arrow=("float32",), arrow_parses="floating", csv_quoted=False,
    ),
    _basic(
        "DOUBLE", sql=("DOUBLE", ()), sql_names=("DOUBLE",), python_class=float, coerce=coercers.coerce_double,
        widen=float, print=texts.double_text, parse=texts.floating_number, text=texts.double_text,
        csv_text=texts.java_double_text,
        json=json.number_cell(float, None, float, texts.floating_number, json.write_double),
        arrow=("float64",), arrow_parses="floating", csv_quoted=False,
    ),
    _basic(
        "BIG_INT", sql=("DECIMAL", (38, 0)), python_class=int, coerce=coercers.coerce_big_int, wider=("BIG_DEC",),
        parse=texts.whole_number, json=json.integer_cell(None), arrow=("decimal256", 76, 0),
        file_arrow=("decimal128", 38, 0), form="integer",
        arrow_parses=Absent("it is wider than the integers that Arrow reads"), csv_quoted=False,
    ),
    _basic(  # decimal numbers stand in columns as text, since they keep all their digits and zeros
        "BIG_DEC", sql=("DECIMAL", (38, 18)), sql_names=("DECIMAL",), python_class=Decimal, fits="{v}.is_finite()",
        coerce=coercers.coerce_big_dec, widen=Decimal, parse=texts.decimal_number,
        json=json.number_cell(
            msgspec.Raw, json.raw_to_decimal, json.number_to_decimal, texts.decimal_number, json.write_decimal
        ),
        arrow=("large_string",), file_arrow=("decimal128", 38, 18), form="decimal",
        arrow_parses=Absent("columns hold the text that Python makes of a Decimal"), csv_quoted=False,
    ),
    _basic(
        "INSTANT", sql=("TIMESTAMP_LTZ", (9,)), sql_names=("TIMESTAMP_LTZ",), python_class=Instant,
        coerce=coercers.coerce_instant,
        no_key=": take the milliseconds as Types.LONG(), or a datetime",
        parse=texts.instant, text=texts.instant_text, csv_text=texts.sql_instant_text,
        json=json.text_cell(texts.instant, texts.instant_text),
        arrow=("timestamp", "us", "UTC"), form="instant", arrow_parses="moment",
    ),
    _date("SQL_DATE", Types.SQL_DATE(), "Types.SQL_DATE()", sql_names=("DATE",)),
    _time("SQL_TIME", Types.SQL_TIME(), "Types.SQL_TIME()", sql_names=("TIME",)),
    _timestamp("SQL_TIMESTAMP", Types.SQL_TIMESTAMP(), "Types.SQL_TIMESTAMP()", sql_names=("TIMESTAMP",)),
    *(
        make(kind.name, LocalTimeTypeInfo(kind), f"LocalTimeTypeInfo(LocalTimeTypeInfo.TimeType.{kind.name})")
        for make, kind in ((_date, _LOCAL.LOCAL_DATE), (_time, _LOCAL.LOCAL_TIME), (_timestamp, _LOCAL.LOCAL_DATE_TIME))
    ),
    ScalarRow(
        name="BYTES", shape=Shape.SCALAR, type_info=_BYTES, source="PrimitiveArrayTypeInfo(Types.BYTE())",
        schema={"type": "primitive_array", "element": {"type": "basic", "of": "BYTE"}},
        sql=("VARBINARY", (LONGEST,)), sql_names=("BINARY", "VARBINARY"), python_class=bytes,
        coerce=coercers.bytes_coercer(_BYTES, strict=False),
        coerce_strictly=coercers.bytes_coercer(_BYTES, strict=True),
        print=lambda value: f"[{', '.join(map(str, value))}]", parse=texts.base64_bytes, text=texts.base64_text,
        csv_text=texts.base64_text, json=json.text_cell(texts.base64_bytes, texts.base64_text),
        arrow=("binary",), arrow_parses=Absent("Arrow reads no base64"), csv_empty=True,
    ),
)  # fmt: skip


def _list(name: str, type_info: type[Any], *, null_elements: bool = True) -> PartsRow:
    return PartsRow(
        name=name, shape=Shape.LIST, type_info=type_info, source=type_info.__name__, schema=name.lower(),
        sql=("ARRAY", ()), no_key=_NO_KEY, parts=lambda nested: (nested.element_type,), null_elements=null_elements,
    )  # fmt: skip


UNKNOWN: Final = PartsRow(
    name="UNKNOWN", shape=Shape.UNKNOWN, type_info=TypeInformation, source="", schema="other", sql=_NO_SQL
)
WITH_PARTS: Final[tuple[PartsRow, ...]] = (
    _list("PRIMITIVE_ARRAY", PrimitiveArrayTypeInfo, null_elements=False),
    _list("BASIC_ARRAY", BasicArrayTypeInfo),
    _list("OBJECT_ARRAY", ObjectArrayTypeInfo),
    _list("LIST", ListTypeInfo),
    PartsRow(
        name="MAP", shape=Shape.MAP, type_info=MapTypeInfo, source="Types.MAP", schema="map", sql=("MAP", ()),
        no_key=_NO_KEY, parts=lambda nested: (nested.key_type, nested.value_type),
    ),
    PartsRow(
        name="ROW", shape=Shape.ROW, type_info=RowTypeInfo, source="Types.ROW_NAMED", schema="row", sql=("ROW", ()),
        parts=lambda nested: nested.field_types,
    ),
    PartsRow(
        name="TUPLE", shape=Shape.TUPLE, type_info=TupleTypeInfo, source="Types.TUPLE", schema="tuple", sql=("ROW", ()),
        parts=lambda nested: nested.field_types,
    ),
    PartsRow(
        name="PICKLED_BYTE_ARRAY", shape=Shape.ANY, type_info=PickledBytesTypeInfo,
        source="Types.PICKLED_BYTE_ARRAY()", schema="pickled", sql=_NO_SQL,
    ),
    UNKNOWN,
)  # fmt: skip
TYPES: Final[tuple[TypeRow, ...]] = (*SCALARS, *WITH_PARTS)

SCALAR_BY_NAME: Final = {row.name: row for row in SCALARS}
_BY_BASIC_TYPE: Final = {row.type_info.basic_type: row for row in SCALARS if isinstance(row.type_info, BasicTypeInfo)}
_BY_TIME_TYPE: Final = {row.type_info.time_type: row for row in SCALARS if isinstance(row.type_info, LocalTimeTypeInfo)}
_SEVERAL: Final = (BasicTypeInfo, LocalTimeTypeInfo, PrimitiveArrayTypeInfo)
"""Classes whose types have several rows."""
_BY_CLASS: Final[dict[type[Any], TypeRow]] = {
    cls: row
    for cls, row in [*((type(row.type_info), row) for row in SCALARS), *((row.type_info, row) for row in WITH_PARTS)]
    if cls not in _SEVERAL
}


def row_of(type_info: TypeInformation) -> TypeRow:
    """The row of a type that is no ``ExternalTypeInfo``; ``UNKNOWN`` of a class that is not there."""
    row = _BY_CLASS.get(type_info.__class__)
    if row is not None:
        return row
    if isinstance(type_info, BasicTypeInfo):
        return _BY_BASIC_TYPE[type_info.basic_type]
    if isinstance(type_info, LocalTimeTypeInfo):
        return _BY_TIME_TYPE[type_info.time_type]
    if isinstance(type_info, PrimitiveArrayTypeInfo):
        return SCALAR_BY_NAME["BYTES"] if type_info.element_type == Types.BYTE() else WITH_PARTS[0]
    return next(_BY_CLASS[cls] for cls in type(type_info).__mro__ if cls in _BY_CLASS)


def scalar_of(type_info: TypeInformation) -> ScalarRow | None:
    """The row of a scalar type; None = it is another type."""
    _, row = resolved(type_info)
    return row if isinstance(row, ScalarRow) else None


def resolved(type_info: TypeInformation) -> tuple[Any, TypeRow]:
    """The type inside a type of the Table API, and its row."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info, row_of(type_info)


def unwrapped(type_info: TypeInformation) -> TypeInformation:
    """The type inside a type of the Table API."""
    type_info, _ = resolved(type_info)
    return type_info


def parts_of(type_info: TypeInformation) -> tuple[TypeInformation, ...]:
    """The types of the parts: of fields, of a map's key and value, of a list's elements."""
    type_info, row = resolved(type_info)
    return row.parts(type_info) if isinstance(row, PartsRow) else ()


def field_names(type_info: TypeInformation) -> tuple[str, ...] | None:
    """Names of the fields of a row or tuple type; None = its values have no fields."""
    if isinstance(type_info, RowTypeInfo):
        return type_info.field_names
    if isinstance(type_info, TupleTypeInfo):
        return tuple(f"f{index}" for index in range(len(type_info.field_types)))
    return None
