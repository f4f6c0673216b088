"""Parts of arrays, maps and rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from firesteel.expressions.registry import Kernel
from firesteel_sql.kernels.definition import KernelCall, by_value, kernel, values_kernel


@kernel
def size(call: KernelCall) -> Kernel:
    """The number of elements of an array or map."""
    if pt.is_list(call.inputs[0]):
        return lambda value: pc.cast(pc.list_value_length(value), call.result)
    return by_value(len, call.result)


@kernel
def array_element(call: KernelCall) -> Kernel:
    """The element at a position from 1; NULL if there is none."""
    return by_value(lambda array, index: array[index - 1] if 0 < index <= len(array) else None, call.result)


@kernel
def map_value(call: KernelCall) -> Kernel:
    """The value of a key; NULL if there is none."""
    return by_value(lambda pairs, key: dict(pairs).get(key), call.result)


@kernel
def row(call: KernelCall) -> Kernel:
    """``ROW(a, b)``."""

    def compute(*values: Any) -> Any:
        count = next((len(value) for value in values if not isinstance(value, pa.Scalar)), None)
        columns = [
            pa.repeat(value, 1 if count is None else count) if isinstance(value, pa.Scalar) else value
            for value in values
        ]
        columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
        found = pa.StructArray.from_arrays(columns, fields=list(call.result))
        return found[0] if count is None else found

    return compute


@kernel
def array(call: KernelCall) -> Kernel:
    """``ARRAY[a, b]``."""
    return by_value(lambda *values: list(values), call.result, sees_null=True)


@kernel
def zipped(call: KernelCall) -> Kernel:
    """The elements of several collections side by side, with NULL where one has fewer; ``kinds`` says what they are."""
    kinds = call.options["kinds"]
    names = [field.name for field in call.result.value_type]
    widths = [2 if kind == "ENTRY" else len(data_type.value_type) if kind == "ROW" else 1
              for kind, data_type in zip(kinds, call.inputs, strict=True)]  # fmt: skip

    def elements(kind: str, width: int, collection: list[Any] | None) -> list[tuple[Any, ...]]:
        match kind:
            case "ENTRY":
                return collection or []
            case "REPEATED":
                return [(value,) for value, count in collection or () for _ in range(count)]
            case "ROW":
                return [(None,) * width if row is None else tuple(row.values()) for row in collection or ()]
        return [(value,) for value in collection or ()]

    def rows(*collections: list[Any] | None) -> list[dict[str, Any]]:
        parts = [elements(*part) for part in zip(kinds, widths, collections, strict=True)]
        result = []
        for number in range(max(map(len, parts))):
            values: list[Any] = []
            for part, width in zip(parts, widths, strict=True):
                values += part[number] if number < len(part) else (None,) * width
            result.append(dict(zip(names, values, strict=True)))
        return result

    return by_value(rows, call.result, sees_null=True)


@kernel
def map_(call: KernelCall) -> Kernel:
    """``MAP['k', v]``; of equal keys the last one counts."""
    return by_value(
        lambda *values: list(dict(zip(values[::2], values[1::2], strict=True)).items()), call.result, sees_null=True
    )


@kernel
def field(call: KernelCall) -> Kernel:
    """A field of a row; NULL where the row is NULL."""
    index = call.options["index"]
    return lambda value: pc.struct_field(value, [index])


# -- functions of arrays


def _among(value: Any, values: list[Any]) -> bool:
    """Whether a value is one of these; NULL equals NULL, and NaN nothing, not even itself."""
    return any(other == value if other is not None and value is not None else other is value for other in values)


def _distinct(values: list[Any]) -> list[Any]:
    try:
        if all(value == value for value in values):
            return list(dict.fromkeys(values))
    except TypeError:  # elements that are arrays, maps or rows
        pass
    kept: list[Any] = []
    for value in values:
        if not _among(value, kept):
            kept.append(value)
    return kept


def _sliced(array: list[Any], start: int, end: int | None = None) -> list[Any]:
    """From one position to another; negative ones count from the end, and 0 is 1."""
    count = len(array)
    end = count if end is None else end
    first = start or 1 if start >= 0 else count + start + 1
    last = end or 1 if end >= 0 else count + end + 1
    return array[max(first, 1) - 1 : last] if last >= 1 else []


def _order(value: Any) -> Any:
    """What a value is sorted by: NaN is the largest number."""
    return (
        (value != value, value)
        if isinstance(value, float) and value == value
        else ((True, 0.0) if isinstance(value, float) else value)
    )


def _sorted(array: list[Any], ascending: bool = True, nulls_first: bool | None = None) -> list[Any]:
    values = sorted((value for value in array if value is not None), key=_order, reverse=not ascending)
    nulls = [None] * (len(array) - len(values))
    return [*nulls, *values] if (ascending if nulls_first is None else nulls_first) else [*values, *nulls]


def _element(array: list[Any]) -> Any:
    if len(array) > 1:
        raise ValueError(f"ELEMENT takes an array of one element, not of {len(array)}")
    return array[0] if array else None


def _extreme(choose: Any) -> Any:
    def of(array: list[Any]) -> Any:
        values = [value for value in array if value is not None]
        return choose(values, key=_order) if values else None

    return of


def _joined(array: list[str | None], separator: str, for_null: str | None = None) -> str:
    texts = (for_null if text is None else text for text in array)
    return separator.join(text for text in texts if text is not None)


array_append = values_kernel(lambda array, value: None if array is None else [*array, value], sees_null=True)
array_prepend = values_kernel(lambda array, value: None if array is None else [value, *array], sees_null=True)
array_concat = values_kernel(lambda *arrays: [value for array in arrays for value in array])
array_contains = values_kernel(lambda array, value: None if array is None else _among(value, array), sees_null=True)
array_distinct = values_kernel(_distinct)
array_except = values_kernel(lambda array, other: _distinct([value for value in array if not _among(value, other)]))
array_intersect = values_kernel(lambda array, other: _distinct([value for value in array if _among(value, other)]))
array_union = values_kernel(lambda array, other: _distinct([*array, *other]))
array_join = values_kernel(_joined)
array_max = values_kernel(_extreme(max))
array_min = values_kernel(_extreme(min))
array_position = values_kernel(
    lambda array, value: next((place for place, item in enumerate(array, 1) if item is not None and item == value), 0)
)
array_remove = values_kernel(
    lambda array, value: None if array is None else [item for item in array if not _among(item, [value])],
    sees_null=True,
)
array_reverse = values_kernel(lambda array: array[::-1])
array_slice = values_kernel(_sliced)
array_sort = values_kernel(_sorted)
element = values_kernel(_element)


# -- functions of maps


def _from_arrays(keys: list[Any], values: list[Any]) -> list[tuple[Any, Any]]:
    if len(keys) != len(values):
        raise ValueError(f"MAP_FROM_ARRAYS takes a value for each key, not {len(values)} for {len(keys)}")
    return list(dict(zip(keys, values, strict=True)).items())


map_keys = values_kernel(lambda pairs: [key for key, _ in pairs])
map_values = values_kernel(lambda pairs: [value for _, value in pairs])
map_entries = values_kernel(lambda pairs: [{"key": key, "value": value} for key, value in pairs])
map_from_arrays = values_kernel(_from_arrays)
map_union = values_kernel(lambda *maps: list({key: value for pairs in maps for key, value in pairs}.items()))
