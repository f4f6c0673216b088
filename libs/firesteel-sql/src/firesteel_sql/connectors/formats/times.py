"""Timestamps and times of day in columns as texts, as Flink writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.common.type_table import Shape, field_names, parts_of, resolved
from firesteel.common.typeinfo import RowTypeInfo, TypeInformation, Types
from firesteel.expressions.values import RECORDS, ROW, arrow_schema


def texts_of_times(rows: pa.RecordBatch, row_type: RowTypeInfo, standard: str) -> tuple[pa.RecordBatch, RowTypeInfo]:
    """The rows with texts in place of timestamps and times, also inside of values, and their type.

    Args:
        rows: columns.
        row_type: their type.
        standard: SQL (``2024-05-01 12:30:00.5``) or ISO-8601 (with a ``T``).
    """
    arrays, types = [], []
    for array, declared in zip(rows.columns, row_type.field_types, strict=True):
        text, text_type = _texts(array, declared, "T" if standard == "ISO-8601" else " ")
        arrays.append(text)
        types.append(text_type)
    result = Types.ROW_NAMED(list(row_type.field_names), types)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(result, {RECORDS: ROW})), result


def _texts(array: Any, declared: TypeInformation, separator: str) -> tuple[Any, TypeInformation]:
    data_type = array.type
    if pt.is_timestamp(data_type):
        end = "Z" if data_type.tz is not None else ""
        moment = array.cast(pa.timestamp("us", "UTC")) if end else array
        return _without_zeros(pc.strftime(moment, f"%Y-%m-%d{separator}%H:%M:%S"), end), Types.STRING()
    if pt.is_time(data_type):
        return _without_zeros(array.cast(pa.string()), ""), Types.STRING()
    if not pt.is_nested(data_type):
        return array, declared
    if array.offset:  # a view: its children are those of the whole column
        array = array.take(pa.array(range(len(array))))
    mask = array.is_null() if array.null_count else None
    inner, row = resolved(declared)
    match row.shape:
        case Shape.ROW if pt.is_struct(data_type):
            pairs = [_texts(part, kind, separator) for part, kind in zip(array.flatten(), parts_of(inner), strict=True)]
            names = list(field_names(inner) or ())
            struct = pa.StructArray.from_arrays([part for part, _ in pairs], names, mask=mask)
            return struct, Types.ROW_NAMED(names, [kind for _, kind in pairs])
        case Shape.LIST if pt.is_list(data_type):
            values, kind = _texts(array.values, parts_of(inner)[0], separator)
            if kind == parts_of(inner)[0]:
                return array, declared
            return pa.ListArray.from_arrays(array.offsets, values, mask=mask), Types.OBJECT_ARRAY(kind)
        case Shape.MAP if pt.is_map(data_type):
            keys, key_kind = _texts(array.keys, parts_of(inner)[0], separator)
            items, item_kind = _texts(array.items, parts_of(inner)[1], separator)
            if (key_kind, item_kind) == tuple(parts_of(inner)):
                return array, declared
            texts = pa.MapArray.from_arrays(array.offsets, keys, items, mask=mask)
            return texts, Types.MAP(key_kind, item_kind)
    return array, declared


def _without_zeros(texts: Any, end: str) -> Any:
    """The texts without zeros at the end of the fraction, and without an empty fraction."""
    short = pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1")
    short = pc.replace_substring_regex(short, r"\.$", "")
    return pc.binary_join_element_wise(short, end, "") if end else short
