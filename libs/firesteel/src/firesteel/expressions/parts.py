"""Parts of lists, maps, rows and tuples."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.common.type_table import Shape, parts_of, row_of, unwrapped
from firesteel.common.typeinfo import MapTypeInfo, TypeInformation
from firesteel.expressions.registry import FunctionCall, InputsRefused, Kernel, function
from firesteel.expressions.schema import arrow_type, schema_of
from firesteel.expressions.values import column_of


def _declared(call: FunctionCall) -> TypeInformation:
    operand = call.inputs[0]
    if operand.type_info is None:
        raise InputsRefused(f"{call.name} takes rows, lists or maps, not {operand}")
    return unwrapped(operand.type_info)


def _typed(part: TypeInformation, kernel: Kernel) -> tuple[pa.DataType, Kernel, TypeInformation]:
    data_type = arrow_type(part)
    assert data_type is not None
    return data_type, kernel, part


@function("field")
def _field(call: FunctionCall) -> tuple[pa.DataType, Kernel, TypeInformation]:
    declared, name = _declared(call), call.options["name"]
    fields = schema_of(declared)
    if fields is None:
        raise InputsRefused(f"field takes rows and tuples, not {declared}")
    if name not in fields:
        near = get_close_matches(name, fields, n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(repr, fields))}"
        raise InputsRefused(f"there is no field {name!r}; {hint}")
    position = list(fields).index(name)
    return _typed(fields[name], lambda a: pc.struct_field(a, [position]))


@function("get")
def _get(call: FunctionCall) -> tuple[pa.DataType, Kernel, TypeInformation]:
    declared, key = _declared(call), call.options["key"]
    if isinstance(declared, MapTypeInfo):
        try:
            arrow_key = column_of([key], "key", declared.key_type)[0]
        except TypeError as error:
            raise InputsRefused(f"the key does not fit: {error}") from None
        return _typed(declared.value_type, lambda a: pc.map_lookup(a, arrow_key, "first"))
    if row_of(declared).shape is not Shape.LIST:
        raise InputsRefused(f"get takes lists and maps, not {declared}")
    if not isinstance(key, int) or isinstance(key, bool):
        raise InputsRefused(f"the position in a list is an int, not {key!r}")
    (elements,) = parts_of(declared)
    return _typed(elements, lambda a: _element(a, key))


def _element(lists: Any, position: int) -> Any:
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    begins, ends = offsets[:-1], offsets[1:]
    places = (begins if position >= 0 else ends) + position
    # places outside of a row's own elements are null, and not the elements of its neighbour
    missing = (places < begins) | (places >= ends)
    if lists.null_count:
        missing |= lists.is_null().to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(np.where(missing, 0, places), mask=missing))


@function("size")
def _size(call: FunctionCall) -> tuple[pa.DataType, Kernel]:
    if not any(fits(call.inputs[0].data_type) for fits in (pt.is_list, pt.is_map)):
        raise InputsRefused(f"size takes lists and maps, not {call.inputs[0]}")
    return pa.int32(), _sizes


def _sizes(parts: Any) -> Any:
    counts = np.diff(parts.offsets.to_numpy(zero_copy_only=False)).astype(np.int32)
    nulls = parts.is_null().to_numpy(zero_copy_only=False) if parts.null_count else None
    return pa.array(counts, mask=nulls)
