"""Declared types and Arrow's types, for files that hold columns."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from firesteel.common.time import Instant
from firesteel.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from firesteel.common.types import make_row
from firesteel.connectors.formats.json_values import row_values
from firesteel.connectors.formats.type_texts import element_type, is_bytes, unwrapped

Convert = Callable[[Any], Any]
_BASIC: Final = {
    BasicType.STRING: pa.string(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.CHAR: pa.string(),
    BasicType.BIG_INT: pa.decimal128(38, 0),
    BasicType.BIG_DEC: pa.decimal128(38, 18),
    BasicType.INSTANT: pa.timestamp("us", tz="UTC"),
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def arrow_type(declared: TypeInformation, *, utc: bool = False) -> pa.DataType:
    """Arrow's type for a declared one.

    Args:
        declared: the type.
        utc: timestamps without a zone are marked as UTC.

    Raises:
        TypeError: there is none.
    """
    declared = unwrapped(declared)
    if isinstance(declared, BasicTypeInfo):
        return _BASIC[declared.basic_type]
    if is_bytes(declared):
        return pa.binary()
    if isinstance(declared, LocalTimeTypeInfo):
        kinds = LocalTimeTypeInfo.TimeType
        return {
            kinds.LOCAL_DATE: pa.date32(),
            kinds.LOCAL_TIME: pa.time64("us"),
            kinds.LOCAL_DATE_TIME: pa.timestamp("us"),
        }[declared.time_type]
    if isinstance(declared, DateTypeInfo):
        return pa.date32()
    if isinstance(declared, TimeTypeInfo):
        return pa.time64("us")
    if isinstance(declared, TimestampTypeInfo):
        return pa.timestamp("us", tz="UTC" if utc else None)
    if isinstance(declared, RowTypeInfo):
        return pa.struct(list(arrow_schema(declared, utc=utc)))
    if isinstance(declared, MapTypeInfo):
        return pa.map_(arrow_type(declared.key_type, utc=utc), arrow_type(declared.value_type, utc=utc))
    elements = element_type(declared)
    if elements is None:
        raise TypeError(f"values of type {declared} can't be in columns")
    return pa.list_(arrow_type(elements, utc=utc))


def arrow_schema(row: RowTypeInfo, *, utc: bool = False) -> pa.Schema:
    """Arrow's schema for a row type.

    Raises:
        TypeError: a field has no Arrow type.
    """
    pairs = zip(row.field_names, row.field_types, strict=True)
    return pa.schema([pa.field(name, arrow_type(t, utc=utc)) for name, t in pairs])


def from_arrow(declared: TypeInformation) -> Convert | None:
    """What turns a value as ``to_pylist`` gives it into one of the type; None = nothing has to be done."""
    declared = unwrapped(declared)
    if isinstance(declared, InstantTypeInfo):
        return _nullable(_to_instant)
    if isinstance(declared, BasicTypeInfo) and declared.basic_type is BasicType.BIG_INT:
        return _nullable(int)
    if isinstance(declared, RowTypeInfo):
        names, parts = declared.field_names, [from_arrow(t) or _same for t in declared.field_types]
        return _nullable(
            lambda value: make_row(names, [part(value[name]) for part, name in zip(parts, names, strict=True)])
        )
    if isinstance(declared, MapTypeInfo):
        key, item = from_arrow(declared.key_type) or _same, from_arrow(declared.value_type) or _same
        return _nullable(lambda value: {key(k): item(v) for k, v in value})
    if isinstance(declared, TimestampTypeInfo):
        return _nullable(_without_zone)
    elements = element_type(declared)
    inner = None if elements is None else from_arrow(elements)
    return None if inner is None else _nullable(lambda values: [inner(value) for value in values])


def to_arrow(declared: TypeInformation) -> Convert | None:
    """What turns a value of the type into one that Arrow takes; None = nothing has to be done."""
    declared = unwrapped(declared)
    if isinstance(declared, InstantTypeInfo):
        return _nullable(_from_instant)
    if isinstance(declared, RowTypeInfo):
        names, parts = declared.field_names, [to_arrow(t) or _same for t in declared.field_types]
        return _nullable(
            lambda value: {
                name: part(item) for name, part, item in zip(names, parts, row_values(value, names), strict=True)
            }
        )
    if isinstance(declared, MapTypeInfo):
        key, item = to_arrow(declared.key_type) or _same, to_arrow(declared.value_type) or _same
        return _nullable(lambda value: [(key(k), item(v)) for k, v in value.items()])
    elements = element_type(declared)
    inner = None if elements is None else to_arrow(elements)
    return None if inner is None else _nullable(lambda values: [inner(value) for value in values])


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _without_zone(value: datetime.datetime) -> datetime.datetime:
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _to_instant(value: datetime.datetime) -> Instant:
    since = (value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)) - _EPOCH
    return Instant(since.days * 86_400 + since.seconds, since.microseconds * 1000)


def _from_instant(value: Instant) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
