"""Converts Python's values to columns and back, exactly.

Arrow has no values for some types: instants, decimal numbers, and lists, maps, rows or tuples with such parts. A field
of such a type names its ``Form`` in the schema's metadata, so a batch can be read without the declared type of its
stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from firesteel.common.coerce_scalars import rounded
from firesteel.common.time import Instant
from firesteel.common.type_table import ScalarRow, Shape, field_names, parts_of, resolved
from firesteel.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from firesteel.common.types import Row, RowKind, make_row
from firesteel.core.errors import TypeMismatchError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.schema import (
    BIG_DEC,
    INSTANT,
    STREAM,
    TIMESTAMP,
    Digits,
    Layout,
    arrow_type,
    digits_of_parts,
    schema_of,
)

RECORDS: Final = b"firesteel.records"
"""Key of a schema's metadata: what its rows are to Python functions, ``row`` or ``tuple``."""
ROW, TUPLE = b"row", b"tuple"
VALUES: Final = b"firesteel.values"
"""Key of a field's metadata: what its values are, as JSON."""
Form = None | str | list[Any]
"""The kind of values: None = as Arrow gives them; instant, integer, decimal; [list, form], [map, key, item],
[row or tuple, forms of the fields]."""
Convert = Callable[[Any], Any]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LARGEST: Final = 10**76


def form_of(type_info: TypeInformation) -> Form:
    """The form of the values of a type; the type has columns."""
    type_info, row = resolved(type_info)
    if isinstance(row, ScalarRow):
        return row.form
    forms = [form_of(part) for part in parts_of(type_info)]
    match row.shape:
        case Shape.LIST:
            return None if forms[0] is None else ["list", forms[0]]
        case Shape.MAP:
            return ["map", *forms]
        case Shape.ROW | Shape.TUPLE:
            return [row.schema, forms]
    return None


def field_of(name: str, type_info: TypeInformation, layout: Layout = STREAM, digits: Digits = None) -> pa.Field:
    """The field of a column; only streams' fields name the form of their values.

    Raises:
        TypeError: the type has no columns.
    """
    data_type = arrow_type(type_info, layout, digits)
    if data_type is None:
        raise TypeError(f"values of type {type_info} can't stand in a column")
    form = form_of(type_info) if layout.exact else None
    return pa.field(name, data_type, metadata=None if form is None else {VALUES: json.dumps(form)})


def arrow_schema(
    type_info: TypeInformation,
    metadata: Mapping[bytes, bytes] | None = None,
    layout: Layout = STREAM,
    digits: Digits = None,
) -> pa.Schema:
    """The schema of the columns of a row or tuple type.

    Raises:
        TypeError: a field has no columns.
    """
    columns = schema_of(type_info)
    assert columns is not None
    pairs = zip(columns.items(), digits_of_parts(digits, len(columns)), strict=True)
    return pa.schema(
        [field_of(name, column_type, layout, column_digits) for (name, column_type), column_digits in pairs],
        metadata=metadata,
    )


@lru_cache(1024)
def _parsed(text: bytes) -> Form:
    form: Form = json.loads(text)
    return form


# --- from columns


def records_of(batch: pa.RecordBatch, declared: TypeInformation | None = None) -> list[Any]:
    """The records of a batch.

    Args:
        batch: with any columns.
        declared: type of the records: a row type gives ``Row``, a tuple type tuples. Without it the batch's
            metadata tells; where it does not, one column gives its values, several give tuples.
    """
    types = None if declared is None else schema_of(declared)
    fields = list(batch.schema) if types is None else [field_of(name, type_info) for name, type_info in types.items()]
    columns = [values_of(column, field) for column, field in zip(batch.columns, fields, strict=True)]
    kind = (batch.schema.metadata or {}).get(RECORDS) if declared is None else None
    if kind == ROW or isinstance(declared, RowTypeInfo):
        names = declared.field_names if isinstance(declared, RowTypeInfo) else tuple(batch.schema.names)
        return [make_row(names, values) for values in zip(*columns, strict=True)]
    if len(columns) == 1 and kind != TUPLE and not isinstance(declared, TupleTypeInfo):
        return columns[0]
    return list(zip(*columns, strict=True))


def values_of(column: pa.Array, field: pa.Field | None = None) -> list[Any]:
    """The values of a column.

    Args:
        column: an array.
        field: of its schema; None = the values are what Arrow gives.
    """
    metadata = None if field is None else field.metadata
    text = None if metadata is None else metadata.get(VALUES)
    return _values(column, None if text is None else _parsed(text))


def _values(column: pa.Array, form: Form) -> list[Any]:
    if form is None:
        return _plain(column)
    if isinstance(form, str):
        return _READERS[form](column)
    kind = form[0]
    if kind == "list":
        return _lists(column, column.values, form[1])
    if kind == "map":
        keys, items = _lists(column, column.keys, form[1]), _lists(column, column.items, form[2])
        pairs = zip(keys, items, strict=True)
        return [None if key is None else dict(zip(key, item, strict=True)) for key, item in pairs]
    parts = [_values(part, part_form) for part, part_form in zip(column.flatten(), form[1], strict=True)]
    rows: list[Any] = list(zip(*parts, strict=True)) if parts else [()] * len(column)
    if kind == "row":
        names = tuple(field.name for field in column.type)
        rows = [make_row(names, list(row)) for row in rows]
    return _with_nulls(column, rows)


def _plain(column: pa.Array) -> list[Any]:
    kind = column.type
    if column.null_count == 0 and (pt.is_integer(kind) or pt.is_floating(kind)):
        numbers: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return numbers
    boxed: list[Any] = column.to_pylist()
    return boxed


def _with_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    if column.null_count == 0:
        return values
    there = column.is_valid().to_pylist()
    return [value if valid else None for value, valid in zip(values, there, strict=True)]


def _lists(column: pa.Array, parts: pa.Array, form: Form) -> list[Any]:
    """The lists of a list array, cut from the array of all their elements."""
    if len(column) == 0:
        return []
    ends = column.offsets.to_pylist()
    begin = ends[0]
    inner = _values(parts.slice(begin, ends[-1] - begin), form)
    lists = [inner[start - begin : end - begin] for start, end in pairwise(ends)]
    return _with_nulls(column, lists)


def _instants(column: pa.Array) -> list[Any]:
    numbers = _plain(column.cast(pa.int64()))
    return [None if n is None else Instant(n // 1_000_000, n % 1_000_000 * 1000) for n in numbers]


def _integers(column: pa.Array) -> list[Any]:
    return [None if number is None else int(number) for number in column.to_pylist()]


def _decimals(column: pa.Array) -> list[Any]:
    return [None if text is None else Decimal(text) for text in column.to_pylist()]


_READERS: Final[dict[str, Callable[[pa.Array], list[Any]]]] = {
    "instant": _instants,
    "integer": _integers,
    "decimal": _decimals,
}


# --- to columns


def column_of(
    values: Sequence[Any], name: str, type_info: TypeInformation, layout: Layout = STREAM, digits: Digits = None
) -> pa.Array:
    """A column of Python values.

    Raises:
        TypeMismatchError: a value does not fit the type; names the column.
    """
    data_type = arrow_type(type_info, layout, digits)
    convert = _stream_writer(type_info) if layout.exact else _writer(type_info, layout, digits)
    assert data_type is not None
    try:
        return pa.array(values if convert is None else list(map(convert, values)), type=data_type, from_pandas=False)
    except _MISFITS as error:
        # Arrow does not say which value it refused: try one after the other, to name it
        for value in values:
            try:
                pa.array([value if convert is None else convert(value)], type=data_type, from_pandas=False)
            except _MISFITS as reason:
                shown = f"{short_repr(value)} ({type(value).__name__})"
                raise TypeMismatchError(name, str(type_info), shown, str(reason)) from None
        raise TypeMismatchError(name, str(type_info), "a batch", str(error)) from None


_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


@lru_cache(1024)
def _stream_writer(type_info: TypeInformation) -> Convert | None:
    return _writer(type_info, STREAM, None)


def _writer(type_info: TypeInformation, layout: Layout, digits: Digits) -> Convert | None:
    """The conversion of a value to one that Arrow takes; None = Arrow takes it as it is."""
    type_info, row = resolved(type_info)
    if isinstance(row, ScalarRow):
        if layout.exact:
            return _WRITERS.get(row.form or row.arrow[0])
        if row.form == "decimal" and digits is not None:
            return lambda value: None if value is None else rounded(value, digits)
        return _cut_instant if row.form == "instant" else None
    types = parts_of(type_info)
    of_parts = [digits] if row.shape is Shape.LIST else digits_of_parts(digits, len(types))
    parts = [_writer(part, layout, part_digits) for part, part_digits in zip(types, of_parts, strict=True)]
    match row.shape:
        case Shape.LIST:
            inner = parts[0]
            return None if inner is None else lambda value: None if value is None else list(map(inner, value))
        case Shape.MAP:
            key, item = (part or _same for part in parts)
            return lambda value: None if value is None else [(key(k), item(v)) for k, v in value.items()]
        case Shape.ROW | Shape.TUPLE:
            names = field_names(type_info) if row.shape is Shape.ROW else None
            return _row_writer(names, [part or _same for part in parts])
    return None


def _same(value: Any) -> Any:
    return value


def _row_writer(names: tuple[str, ...] | None, parts: list[Convert]) -> Convert:
    def write(value: Any) -> Any:
        if value is None:
            return None
        if getattr(value, "_row_kind", RowKind.INSERT) is not RowKind.INSERT:
            raise ValueError(f"a row of the kind {value.get_row_kind()} can't stand in a column")
        items = value if names is None else row_values(value, names)
        return tuple(part(item) for part, item in zip(parts, items, strict=True))

    return write


def row_values(value: Any, names: tuple[str, ...]) -> list[Any]:
    """The fields of a row, dict or sequence, in this order.

    Raises:
        ValueError: there are others than these, or not as many.
        TypeError: it is none of the three.
    """
    if isinstance(value, Row):
        fields = value._fields
        values = value._values if fields is None or fields == names else value.get_fields_by_names(names)
    elif isinstance(value, dict):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise ValueError(f"the keys {unknown!r} are not fields of {list(names)}")
        values = [value.get(name) for name in names]
    elif isinstance(value, (tuple, list)):
        values = list(value)
    else:
        raise TypeError(f"a Row, tuple, list or dict is expected, not {value!r:.80}")
    if len(values) != len(names):
        raise ValueError(f"{len(values)} values for the {len(names)} fields {list(names)}")
    return values


def _without_zone(value: Any) -> Any:
    if value is not None and value.tzinfo is not None:
        raise ValueError("it has a time zone, and this type has none; declare Types.INSTANT(), or remove the zone")
    return value


def _instant(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    micros, nanoseconds = divmod(value.nanos, 1000)
    if nanoseconds:
        raise ValueError("columns hold instants to the microsecond")
    return value.seconds * 1_000_000 + micros


def _cut_instant(value: Any) -> Any:
    return value if value is None or isinstance(value, datetime) else value.seconds * 1_000_000 + value.nanos // 1000


def _big_int(value: Any) -> Any:
    if value is None:
        return None
    if not -_LARGEST < value < _LARGEST:
        raise ValueError("columns hold integers of up to 76 digits")
    return Decimal(value)


def _big_dec(value: Any) -> Any:
    return None if value is None else str(value)


_WRITERS: Final[dict[str, Convert]] = {
    "instant": _instant,
    "integer": _big_int,
    "decimal": _big_dec,
    "timestamp": _without_zone,
    "time64": _without_zone,
}
"""Conversions to values of Arrow by form, or by the kind of Arrow's type where the values are what Arrow gives."""


# --- columns of others


def fitted(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """A column of another type as one of this type; nothing is lost but the precision of decimal numbers.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: it does not fit.
    """
    if column.type == data_type:
        return column
    if data_type == BIG_DEC:
        if pt.is_decimal(column.type) or pt.is_integer(column.type):
            return column.cast(pa.string()).cast(data_type)
        texts = column.cast(pa.string())
        for text in texts.to_pylist():
            if text is not None and not _is_decimal(text):
                raise pa.ArrowInvalid(f"{text!r} is no decimal number")
        return texts.cast(data_type)
    if data_type == INSTANT and pt.is_timestamp(column.type) and column.type.tz is None:
        raise pa.ArrowInvalid("timestamps without a time zone are no instants: cast them, for instance to UTC")
    if pt.is_timestamp(column.type) and column.type.tz is not None and data_type == TIMESTAMP:
        raise pa.ArrowInvalid("instants are no timestamps without a time zone: declare Types.INSTANT(), or cast them")
    return column.cast(data_type)


def _is_decimal(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
