"""Estimates how many bytes records take when serialised.

There are two estimates, both right within a factor of two for common records. The *quick* one looks at three records of
a batch, the full one at *all*: a single large record among many small ones must not be overlooked for long, or
gigabytes would wait in a window of a mebibyte. For the full one ``marshal`` walks through plain values in C, at 10 to
110 ns for a record, without calling user code; objects that it does not know are looked at class by class. That is a
tenth of the cost of moving a record to another task. So a channel looks at all records of every batch only while the
quick estimate turns out wrong, and otherwise at those of one batch in eight (``BatchSizes``).
"""

from __future__ import annotations

import marshal
from array import array
from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum
from itertools import chain, islice
from operator import attrgetter
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from firesteel.common.types import Row
from firesteel.core.errors import TaskInterrupt
from firesteel.runtime.records.batch import Batch, Values

_SAMPLE: Final = 16
"""Elements of a container at which the quick estimate looks."""
_DEPTH: Final = 3
"""Levels of nested containers into which the quick estimate looks."""
_DEEPEST: Final = 12
"""Levels of nested containers into which the full estimate looks."""
_FIXED: Final = {type(None): 1, bool: 1, int: 5, float: 9}
_MARSHAL: Final = 4
"""Version of the format of ``marshal``; in this one an object that occurs several times is counted once."""
_COPIED: Final = 16 << 20
"""Quick estimate in bytes beyond which ``marshal`` is not used, because it copies the batch."""
_ROW_VALUES: Final = attrgetter("_values")
_EXCEPTION_ARGUMENTS: Final = attrgetter("args")
_BESIDE: Final = 9
"""Bytes of a timestamp and a row kind."""
_REFERENCE: Final = 40
"""Bytes of a class, a function or an enum member: pickle writes the name of its module and its own."""
_UNKNOWN: Final = 64
"""Bytes of a record that raises when it is looked at."""
FEW: Final = 64
"""Batches with fewer records are always measured in full, because handling the batch costs more than that."""
TRUSTED: Final = 7
"""Most batches in a row for which a channel uses the quick estimate."""
_MOST_CLASSES: Final = 10_000
"""Number of classes at which the cache of their forms is emptied."""


# How the values of a class are measured. Plain numbers, because looking up an enum member would take as long as the
# rest of the estimate.
_TEXT, _TUPLE, _LIST, _DICT, _OTHER_CONTAINER, _BUFFER, _ARRAY, _BY_NAME, _OBJECT = range(9)


class _Forms(dict[type, int]):
    """Caches the form of each class. Programs may create classes at run time, so the cache is emptied when full."""

    def __missing__(self, kind: type) -> int:
        if len(self) >= _MOST_CLASSES:
            self.clear()
        self[kind] = form = _form_of(kind)
        return form


def _form_of(kind: type) -> int:
    # Their attributes lead to the whole module or interpreter, so they count like their names.
    if issubclass(kind, type | Enum | FunctionType | BuiltinFunctionType | ModuleType):
        return _BY_NAME
    if issubclass(kind, array):
        return _ARRAY
    if issubclass(kind, np.ndarray | np.generic) or str(kind.__module__).startswith(("numpy", "pyarrow", "pandas")):
        return _BUFFER
    for base, form in (
        ((str, bytes, bytearray), _TEXT),
        (tuple, _TUPLE),
        (list, _LIST),
        (dict, _DICT),
        ((set, frozenset, deque), _OTHER_CONTAINER),
    ):
        if issubclass(kind, base):
            return form
    return _OBJECT


_FORMS: Final = _Forms()
_PLAIN_CONTAINERS: Final = frozenset({tuple, list, dict, set, frozenset, deque})
"""Containers whose instances have no attributes."""


def record_bytes(value: Any) -> int:
    """Quick estimate for one record, from a few elements of its containers. Never raises."""
    try:
        return _quick_bytes(value, _DEPTH)
    except TaskInterrupt:
        raise
    except BaseException:  # a record's own code may raise, another thread may change it, or it may be nested too deep
        return _UNKNOWN


def _quick_bytes(value: Any, depth: int) -> int:
    kind = type(value)
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed
    if kind is str:
        return len(value) + 4
    form = _FORMS[kind]
    if depth > 0:
        if form == _TUPLE:
            return 4 + _elements(tuple.__getitem__(value, slice(_SAMPLE)), tuple.__len__(value), depth - 1)
        if form == _DICT:
            pairs = list(islice(dict.items(value), _SAMPLE // 2))
            return 4 + _elements([item for pair in pairs for item in pair], 2 * dict.__len__(value), depth - 1)
        if form == _LIST:
            return 4 + _elements(list.__getitem__(value, slice(_SAMPLE)), list.__len__(value), depth - 1)
        if form in (_OBJECT, _OTHER_CONTAINER):
            try:
                fields = object.__getattribute__(value, "__dict__")
            except AttributeError:
                fields = None
            if type(fields) is dict:
                return 24 + _quick_bytes(fields, depth - 1)
    if form == _TEXT:
        return _length_of(kind)(value) + 4
    if form == _BUFFER:
        return _buffer_bytes(value)
    if form == _ARRAY:
        return _array_bytes(value)
    if form == _BY_NAME:
        return _REFERENCE
    return kind.__basicsize__


def _elements(sample: Any, count: int, depth: int) -> int:
    sampled = len(sample)
    return sum(_quick_bytes(item, depth) for item in sample) * count // sampled if sampled else 0


def _length_of(kind: type) -> Callable[[Any], int]:
    """The function that returns the length of texts of a class, even if a user's subclass overrides ``__len__``."""
    length: Callable[[Any], int] = next(base.__len__ for base in (str, bytes, bytearray) if issubclass(kind, base))
    return length


def _buffer_bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if size is None and hasattr(value, "memory_usage"):  # a DataFrame of pandas
        size = int(value.memory_usage().sum())
    elif isinstance(value, np.ndarray) and value.dtype.kind == "O":
        size = _elements(value.flat[:_SAMPLE].tolist(), value.size, 1)
    return size + 128 if isinstance(size, int) else 64


def _array_bytes(value: array[Any]) -> int:
    return len(value) * value.itemsize + 64


def values_bytes(values: Values) -> int:
    """The quick estimate for a list, from its first, middle and last record, or the exact size of a ``RecordBatch``."""
    if isinstance(values, pa.RecordBatch):
        return int(values.nbytes) + 64
    count = len(values)
    if count <= 3:
        return sum(record_bytes(value) for value in values)
    return (record_bytes(values[0]) + record_bytes(values[count // 2]) + record_bytes(values[-1])) * count // 3


def batch_bytes(batch: Batch, *, quick: bool = False) -> int:
    """The estimate that a batch carries; if it has none, make it from all records, or quickly, and store it there."""
    size = batch.bytes_estimate
    if size <= 0:
        size = values_bytes(batch.values) if quick else _all_bytes(batch.values)
        if batch.timestamps is not None:
            size += 8 * len(batch)
        if batch.kinds is not None:
            size += len(batch)
        batch.bytes_estimate = size = max(1, size)
    return size


class BatchSizes:
    """Estimates the bytes of the batches of one channel, which are mostly alike.

    The first batch, and all with few records, are measured in full. After each full measurement that agrees with the
    quick estimate, the quick one is used for a growing number of batches, up to ``TRUSTED``. So queued bytes are
    underestimated by that factor at most, however rare large records are.
    """

    def __init__(self) -> None:
        self._trust = 0
        self._quick_batches = 0  # batches for which the quick estimate is still used

    def measure(self, batch: Batch) -> int:
        """The estimate that a batch carries; if it has none, make it and store it there."""
        if batch.bytes_estimate > 0 or len(batch) < FEW or isinstance(batch.values, pa.RecordBatch):
            return batch_bytes(batch)
        if self._quick_batches:
            self._quick_batches -= 1
            return batch_bytes(batch, quick=True)
        size = batch_bytes(batch)
        right = size <= 2 * values_bytes(batch.values) + _BESIDE * len(batch)
        self._quick_batches = self._trust = min(TRUSTED, 2 * self._trust + 1) if right else 0
        return size


def _all_bytes(values: Values) -> int:
    quick = values_bytes(values)
    if isinstance(values, pa.RecordBatch):
        return quick
    try:
        if quick > _COPIED:
            return _each(values, _DEEPEST, copy=False)
        # ``marshal`` counts an object that records share once. Where records are small, it counts for each of them.
        return max(quick, _each(values, _DEEPEST, copy=True))
    except TaskInterrupt:
        raise
    except BaseException:  # an estimate fails no record; see ``record_bytes``
        return quick


def _each(values: list[Any], depth: int, *, copy: bool) -> int:
    """Sum the sizes of all values; everything that is done for each value is done in C.

    Args:
        values: records, or elements of their containers.
        depth: levels of nested containers into which to look.
        copy: whether the values may be copied, by ``marshal``.
    """
    if copy:
        try:
            return len(marshal.dumps(values, _MARSHAL))
        except ValueError:  # ``marshal`` does not know an object, or values are nested too deep
            pass
    kinds = set(map(type, values))
    if len(kinds) == 1:
        return _of_kind(kinds.pop(), values, depth, copy=copy)
    groups: dict[type, list[Any]] = defaultdict(list)
    for value in values:
        groups[type(value)].append(value)
    return sum(_of_kind(kind, group, depth, copy=copy) for kind, group in groups.items())


def _of_kind(kind: type, values: list[Any], depth: int, *, copy: bool) -> int:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        if kind is int:  # integers may have any number of digits
            return sum(map(int.bit_length, values)) // 8 + fixed * len(values)
        return fixed * len(values)
    form = _FORMS[kind]
    if form == _TEXT:
        return sum(map(_length_of(kind), _once(values))) + 4 * len(values)
    if form == _BY_NAME:
        return _REFERENCE * len(_once(values)) + 8 * len(values)
    if form == _BUFFER:
        return sum(map(_buffer_bytes, _once(values)))
    if form == _ARRAY:
        return sum(map(_array_bytes, _once(values)))
    if depth <= 0:
        return kind.__basicsize__ * len(values)
    parts = _parts(kind, form, _once(values))
    if parts is None:
        return kind.__basicsize__ * len(values)
    return 8 * len(values) + (_each(parts, depth - 1, copy=copy) if parts else 0)


def _parts(kind: type, form: int, values: list[Any]) -> list[Any] | None:
    """The elements, attributes and slots of containers or objects of one class; None if they can't be seen."""
    parts = list[Any]()
    if form in (_TUPLE, _LIST, _OTHER_CONTAINER):
        iterate = next(base.__iter__ for base in (tuple, list, set, frozenset, deque) if issubclass(kind, base))
        parts += chain.from_iterable(map(iterate, values))
    elif form == _DICT:
        parts += chain.from_iterable(map(dict.keys, values))
        parts += chain.from_iterable(map(dict.values, values))
    elif kind is Row:
        return list(chain.from_iterable(map(_ROW_VALUES, values)))
    elif issubclass(kind, BaseException):
        parts += chain.from_iterable(map(_EXCEPTION_ARGUMENTS, values))
    if kind in _PLAIN_CONTAINERS:
        return parts
    members = _members(kind)
    for member in members:
        parts += _in_slots(member, values)
    try:
        fields = [object.__getattribute__(value, "__dict__") for value in values]
    except AttributeError:
        return parts if members or form != _OBJECT else None
    if set(map(type, fields)) != {dict}:  # a class may return anything as its ``__dict__``
        fields = [attributes for attributes in fields if isinstance(attributes, dict)]
    parts += chain.from_iterable(map(dict.values, fields))
    return parts


def _once(values: list[Any]) -> list[Any]:
    """The distinct objects among these, by identity."""
    return list(dict(zip(map(id, values), values, strict=True)).values())


def _members(kind: type) -> tuple[MemberDescriptorType, ...]:
    """The descriptors of all slots of a class, which ``__slots__`` creates."""
    return tuple(
        member for base in kind.__mro__ for member in vars(base).values() if isinstance(member, MemberDescriptorType)
    )


def _in_slots(member: MemberDescriptorType, values: list[Any]) -> list[Any]:
    """The values of one slot of these objects; the slot may be unset in some."""
    try:
        return list(map(member.__get__, values))
    except AttributeError:
        pass
    parts = list[Any]()
    for value in values:
        try:
            parts.append(member.__get__(value))
        except AttributeError:
            pass
    return parts
