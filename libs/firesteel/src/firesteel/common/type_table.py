"""The table of types: it has a row for each type that programs can declare, and a column for each use of its values.

Values of a declared type are checked, printed, converted to columns of Arrow, JSON, CSV and snapshots of state, and
named in SQL. For a *scalar* type each use is a cell of its row. For a type with parts (rows, tuples, maps, arrays) the
row says what the parts are; each use has one case for each ``Shape``, which combines the results for the parts.

A new scalar type is a new row: ``tests/unit/common/test_type_table.py`` tests it in every use. A use that a type does
not have is ``Absent``, with the reason. A plug-in has its own column, a dict by the name of the row, as
``firesteel_jdbc.values`` does; the test names rows that it lacks.

This module does not load Arrow: an Arrow type is given by the name of the ``pyarrow`` function that makes it, and its
arguments.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from functools import lru_cache
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
    DecimalTypeInfo,
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
"""An Arrow type: a function of ``pyarrow`` and its arguments, such as ``("timestamp", "us")``."""
LONGEST: Final = 0x7FFFFFFF
"""Length that SQL types of text and bytes of any length have."""


class Shape(Enum):
    """Structure of the values of a type."""

    SCALAR = "scalar"
    LIST = "list"
    MAP = "map"
    ROW = "row"
    TUPLE = "tuple"
    ANY = "any"
    """Any Python object: nothing is known about it."""
    UNKNOWN = "unknown"
    """The table has no row for the class of the type."""


@dataclass(frozen=True)
class Absent:
    """A use that a type does not have, and why."""

    reason: str

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class TypeRow:
    """The row of a type.

    Attributes:
        name: name in ``Types``, or Java's name for local dates and times.
        shape: structure of the values.
        type_info: the type; types with parts: its class.
        source: Python code that makes the type; types with parts: the callable that makes it from them.
        schema: schema of the values in snapshots of state, as plain data (``state.schema``); types with parts: its
            kind.
        sql: name and parameters of the SQL type of the values.
        no_key: why values can't be keys, following ``... is no type of keys``; empty = they can.
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
        sql_names: SQL types whose values have this type.
        bits: number of bits, for integers with a range.
        python_class: class of values that need no coercion.
        fits: further condition for such a value ``{v}``, as a Python expression; empty = there is none.
        coerce: converts the result of a user's function to a value of the type (``common.coerce``).
        coerce_strictly: the same, but integers out of range are errors.
        wider: names of the types that can represent each value of this type without loss.
        widen: converts a value of a narrower type to one of this type; None = Python has the same value for both.
        print: returns the text that ``print()`` shows for a value.
        parse: reads a value from JSON or CSV, or from a key of JSON.
        text: writes a value, or a key, in JSON.
        csv_text: writes a value in CSV.
        json: representation of values in JSON.
        arrow: type of columns in streams, which represent each value exactly.
        file_arrow: type of columns in files, if it is another one.
        form: meaning of the Arrow values, in the metadata of columns; None = they are the values themselves.
        arrow_parses: kind of text that Arrow reads as ``parse`` does: ``text``, ``integer``, ``floating``,
            ``boolean``, ``moment``.
        arrow_prints: whether Arrow writes the same text in CSV.
        csv_quoted: whether values are quoted in CSV, if needed.
        csv_empty: whether an empty field in CSV is a value, not null.
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
    """A type with parts, or one about which nothing is known.

    Attributes:
        parts: returns the types of the parts.
        null_elements: lists: whether an element may be null.
    """

    parts: Callable[[Any], tuple[TypeInformation, ...]] = lambda type_info: ()
    null_elements: bool = True


_NO_KEY: Final = ", as its values can change: use Types.TUPLE or Types.ROW"
_NO_SQL: Final = Absent("declare the fields, such as with Types.ROW_NAMED")


def _basic(name: str, *, coerce: Coercer, coerce_strictly: Coercer | None = None, **cells: Any) -> ScalarRow:
    """Make the row of one of ``BasicType``."""
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
    """Make the row of a date, time or timestamp without a time zone."""
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


@lru_cache(256)
def _decimal_row(declared: DecimalTypeInfo) -> ScalarRow:
    """Make the row of decimal numbers with so many digits: that of BIG_DEC, with numbers that are rounded to them."""
    digits = (declared.precision, declared.scale)
    coerce = coercers.decimal_coercer(declared, digits)

    def parse(text: str) -> Decimal:
        return coercers.rounded(texts.decimal_number(text), digits)

    def make(number: Any) -> Decimal:
        return coercers.rounded(json.number_to_decimal(number), digits)

    def of_raw(raw: Any) -> Decimal | None:
        number = json.raw_to_decimal(raw)
        return None if number is None else coercers.rounded(number, digits)

    return replace(
        SCALAR_BY_NAME["BIG_DEC"], name="DECIMAL", type_info=declared, source=f"DecimalTypeInfo{digits}",
        schema={"type": "decimal", "precision": declared.precision, "scale": declared.scale},
        sql=("DECIMAL", digits), sql_names=(), wider=(), widen=None, coerce=coerce, coerce_strictly=coerce, parse=parse,
        fits=f"{{v}}.is_finite() and {{v}}.as_tuple().exponent == {-declared.scale} and len({{v}}.as_tuple()[1]) <= "
        f"{declared.precision}",
        json=json.number_cell(
            msgspec.Raw, of_raw, make, parse, json.write_plain_decimal
        ),
        arrow=("decimal128", *digits), file_arrow=None, form=None,
    )  # fmt: skip


def row_of(type_info: TypeInformation) -> TypeRow:
    """Return the row of a type that is not an ``ExternalTypeInfo``; ``UNKNOWN`` if the table has no such class."""
    if isinstance(type_info, DecimalTypeInfo):
        return _decimal_row(type_info)
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
    """Return the row of a scalar type; None = the type is not scalar."""
    _, row = resolved(type_info)
    return row if isinstance(row, ScalarRow) else None


def resolved(type_info: TypeInformation) -> tuple[Any, TypeRow]:
    """Return the type inside a type of the Table API (else the type itself), and its row."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info, row_of(type_info)


def unwrapped(type_info: TypeInformation) -> TypeInformation:
    """Return the type inside a type of the Table API, else the type itself."""
    type_info, _ = resolved(type_info)
    return type_info


def parts_of(type_info: TypeInformation) -> tuple[TypeInformation, ...]:
    """Return the types of a type's parts: of fields, of a map's key and value, or of a list's elements."""
    type_info, row = resolved(type_info)
    return row.parts(type_info) if isinstance(row, PartsRow) else ()


def field_names(type_info: TypeInformation) -> tuple[str, ...] | None:
    """Return the names of the fields of a row or tuple type; None = its values have no fields."""
    if isinstance(type_info, RowTypeInfo):
        return type_info.field_names
    if isinstance(type_info, TupleTypeInfo):
        return tuple(f"f{index}" for index in range(len(type_info.field_types)))
    return None
