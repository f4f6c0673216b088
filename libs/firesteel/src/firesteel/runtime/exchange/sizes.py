"""How many bytes records take.

Two estimates, both right within a factor of two for common records. A *quick* one takes three records of a batch, the
other looks at *all* of them: a single large one among many small ones must not be overlooked for long, or gigabytes
wait in a window of a mebibyte. ``marshal`` walks through plain values in C, at 10 to 110 ns for a record, and calls no
code of the user's; objects that it does not know are looked at kind by kind. That is a tenth of what moving a record to
another task costs, so a channel looks at all records of every batch only while the quick estimate turns out wrong, else
at those of one batch in eight (``BatchSizes``).
"""

from __future__ import annotations

import marshal
from collections import defaultdict
from itertools import chain, islice
from operator import attrgetter
from types import MemberDescriptorType
from typing import Any, Final

import pyarrow as pa

from firesteel.common.types import Row
from firesteel.runtime.batch import Batch, Values

_SAMPLE: Final = 16
_DEPTH: Final = 3
_DEEPEST: Final = 12
"""Containers in containers that are looked into when all records are."""
_FIXED: Final = {type(None): 1, bool: 1, int: 5, float: 9}
_MARSHAL: Final = 4
"""Version of its format; what records share is counted once."""
_COPIED: Final = 16 << 20
"""Bytes; of more, by the quick estimate, ``marshal`` makes no copy."""
_ROW_VALUES: Final = attrgetter("_values")
_BESIDE: Final = 9
"""Bytes of a timestamp and a row kind."""
FEW: Final = 64
"""Records; in smaller batches they are all looked at: handling the batch costs more."""
TRUSTED: Final = 7
"""Batches in a row, at most, for which a channel takes the quick estimate."""


def record_bytes(value: Any, depth: int = _DEPTH) -> int:
    """Quick estimate for one record, from a few elements of its containers."""
    kind = type(value)
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed
    if kind is str or kind is bytes or kind is bytearray:
        return len(value) + 4
    if kind.__module__.startswith(("numpy", "pyarrow")):
        return _buffer_bytes(value)
    if depth > 0:
        if issubclass(kind, tuple):
            return 4 + _elements(tuple.__getitem__(value, slice(_SAMPLE)), tuple.__len__(value), depth - 1)
        if issubclass(kind, list):
            return 4 + _elements(list.__getitem__(value, slice(_SAMPLE)), list.__len__(value), depth - 1)
        if issubclass(kind, dict):
            pairs = list(islice(dict.items(value), _SAMPLE // 2))
            return 4 + _elements([item for pair in pairs for item in pair], 2 * dict.__len__(value), depth - 1)
        try:
            fields = object.__getattribute__(value, "__dict__")
        except AttributeError:
            fields = None
        if type(fields) is dict:
            return 24 + record_bytes(fields, depth - 1)
    return object.__sizeof__(value)


def _elements(sample: Any, count: int, depth: int) -> int:
    seen = len(sample)
    return sum(record_bytes(item, depth) for item in sample) * count // seen if seen else 0


def _buffer_bytes(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    return size + 128 if isinstance(size, int) else 64


def values_bytes(values: Values) -> int:
    """Quick estimate for a list (from its first, middle and last record), or the exact size of a ``RecordBatch``."""
    if isinstance(values, pa.RecordBatch):
        return int(values.nbytes) + 64
    count = len(values)
    if count <= 3:
        return sum(record_bytes(value) for value in values)
    return (record_bytes(values[0]) + record_bytes(values[count // 2]) + record_bytes(values[-1])) * count // 3


def batch_bytes(batch: Batch, *, quick: bool = False) -> int:
    """The batch's estimate of bytes, made now from all of its records, or quickly, if it has none."""
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
    """Estimates the bytes of the batches of one channel, which are much like each other.

    All records of a batch are looked at where they are few, and in the first batch. After each batch for which the
    quick estimate would have done, it counts for some of those that follow, up to ``TRUSTED``. So what waits is
    underestimated by that factor at most, however seldom large records are.
    """

    def __init__(self) -> None:
        self._trust = 0
        self._left = 0  # batches that the quick estimate counts for

    def measure(self, batch: Batch) -> int:
        """The batch's estimate of bytes, which it keeps; made now if it has none."""
        if batch.bytes_estimate > 0 or len(batch) < FEW or isinstance(batch.values, pa.RecordBatch):
            return batch_bytes(batch)
        if self._left:
            self._left -= 1
            return batch_bytes(batch, quick=True)
        size = batch_bytes(batch)
        right = size <= 2 * values_bytes(batch.values) + _BESIDE * len(batch)
        self._left = self._trust = min(TRUSTED, 2 * self._trust + 1) if right else 0
        return size


def _all_bytes(values: Values) -> int:
    quick = values_bytes(values)
    if isinstance(values, pa.RecordBatch):
        return quick
    if quick > _COPIED:
        return _each(values, _DEEPEST, copy=False)
    return max(quick, _each(values, _DEEPEST, copy=True))  # what small records share still counts for each of them


def _each(values: list[Any], depth: int, *, copy: bool) -> int:
    """The sum over all elements; what is done for each is done in C.

    Args:
        copy: the values are few enough bytes to be copied.
    """
    if copy:
        try:
            return len(marshal.dumps(values, _MARSHAL))
        except ValueError:  # objects that it does not know, or too deep
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
        return fixed * len(values)
    if kind is str or kind is bytes or kind is bytearray:
        return sum(map(len, _once(values))) + 4 * len(values)
    if kind.__module__.startswith(("numpy", "pyarrow")):
        return sum(map(_buffer_bytes, _once(values)))
    if depth <= 0:
        return sum(map(object.__sizeof__, values))
    inside = _inside(kind, values)
    if inside is None:
        return sum(map(object.__sizeof__, values))
    return 8 * len(values) + (_each(inside, depth - 1, copy=copy) if inside else 0)


def _inside(kind: type, values: list[Any]) -> list[Any] | None:
    """What containers or objects of one kind hold; None if that can't be seen."""
    once = _once(values)
    for container in (tuple, list, set, frozenset):
        if issubclass(kind, container):
            return list(chain.from_iterable(map(container.__iter__, once)))
    if issubclass(kind, dict):
        return list(chain(chain.from_iterable(map(dict.keys, once)), chain.from_iterable(map(dict.values, once))))
    if kind is Row:
        return list(chain.from_iterable(map(_ROW_VALUES, once)))
    found = list[Any]()
    members = _members(kind)
    for member in members:
        found += _given(member, once)
    try:
        fields = [object.__getattribute__(value, "__dict__") for value in once]
    except AttributeError:
        return found if members else None
    found += chain.from_iterable(map(dict.values, fields))
    return found


def _once(values: list[Any]) -> list[Any]:
    """Each object once, however often it occurs."""
    return list(dict(zip(map(id, values), values, strict=True)).values())


def _members(kind: type) -> tuple[MemberDescriptorType, ...]:
    """What ``__slots__`` has made."""
    return tuple(
        member for base in kind.__mro__ for member in vars(base).values() if isinstance(member, MemberDescriptorType)
    )


def _given(member: MemberDescriptorType, values: list[Any]) -> list[Any]:
    """What is in one slot of these objects; it may be empty in some."""
    try:
        return list(map(member.__get__, values))
    except AttributeError:
        pass
    found = list[Any]()
    for value in values:
        try:
            found.append(member.__get__(value))
        except AttributeError:
            pass
    return found
