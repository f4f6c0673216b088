"""Contents of windows: records as they are, combined into one, or in an accumulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from firesteel.common.own_copies import own_copies, own_copy
from firesteel.functions.functions import ReduceFunction
from firesteel.windowing.evictors import TimestampedValue
from firesteel.windowing.spec import WindowGathering, WindowSpec

__all__ = ["EMPTY", "WindowContents", "contents_of"]


class _Empty:
    """Stands for the contents of a window that is there but holds no records: it was purged."""

    def __repr__(self) -> str:
        return "EMPTY"

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY: Final = _Empty()


class WindowContents(ABC):
    """The way in which windows keep their records. The contents of one window are an opaque value, handed in and out.

    Functions of programs may change their arguments in place, so a window that goes on never shares its contents with
    them.

    Attributes:
        changes: whether adding a record may change it, or put it into an object that is changed later; the caller then
            adds a copy of its own if other windows have the same record.
    """

    changes = False

    @abstractmethod
    def first(self, value: Any, timestamp: int | None) -> Any:
        """The contents of a window whose only record is this one."""

    @abstractmethod
    def add(self, contents: Any, value: Any, timestamp: int | None) -> Any:
        """The contents with one record more; may be the object that was handed in, changed."""

    @abstractmethod
    def merge(self, first: Any, second: Any) -> Any:
        """The contents of two windows as one; the contents of the earlier window come first. May change both."""

    @abstractmethod
    def elements(self, contents: Any, *, goes_on: bool) -> list[Any]:
        """Return the elements for the window function: a new list, which the function may change.

        Args:
            contents: the contents of the window.
            goes_on: whether the window stays when it has been evaluated; then the elements are copies.
        """


class AllRecords(WindowContents):
    """Keeps the records of each window in a list.

    Args:
        shared: whether other windows have the same records, so that functions get copies.
    """

    def __init__(self, shared: bool = False) -> None:
        self._shared = shared

    def first(self, value: Any, timestamp: int | None) -> Any:
        return [value]

    def add(self, contents: Any, value: Any, timestamp: int | None) -> Any:
        contents.append(value)
        return contents

    def merge(self, first: Any, second: Any) -> Any:
        first.extend(second)
        return first

    def elements(self, contents: Any, *, goes_on: bool) -> list[Any]:
        return list(own_copies(contents) if goes_on or self._shared else contents)


class CombinedContents(WindowContents):
    """Keeps one value for each window, into which a reduce function combines each record."""

    changes = True

    def __init__(self, reduce: Callable[[Any, Any], Any]) -> None:
        self.reduce = reduce

    def first(self, value: Any, timestamp: int | None) -> Any:
        return value

    def add(self, contents: Any, value: Any, timestamp: int | None) -> Any:
        return self.reduce(contents, value)

    def merge(self, first: Any, second: Any) -> Any:
        return self.reduce(first, second)

    def elements(self, contents: Any, *, goes_on: bool) -> list[Any]:
        return [own_copy(contents) if goes_on else contents]


class Accumulated(WindowContents):
    """Keeps the accumulator of an aggregate function for each window."""

    changes = True

    def __init__(self, function: Any) -> None:
        self.create, self.accumulate = function.create_accumulator, function.add
        self.result, self.merge_two = function.get_result, function.merge

    def first(self, value: Any, timestamp: int | None) -> Any:
        return self.accumulate(value, self.create())

    def add(self, contents: Any, value: Any, timestamp: int | None) -> Any:
        return self.accumulate(value, contents)

    def merge(self, first: Any, second: Any) -> Any:
        return self.merge_two(first, second)

    def elements(self, contents: Any, *, goes_on: bool) -> list[Any]:
        result = self.result(contents)
        return [own_copy(result) if goes_on else result]


class Evictable(WindowContents):
    """Keeps the records with their timestamps, since an evictor may take out any of them.

    They are combined or accumulated only when the window is evaluated, as in Flink's ``EvictingWindowOperator``.
    """

    def __init__(self, inner: WindowContents) -> None:
        self.inner = inner

    def first(self, value: Any, timestamp: int | None) -> Any:
        return [TimestampedValue(value, timestamp)]

    def add(self, contents: Any, value: Any, timestamp: int | None) -> Any:
        contents.append(TimestampedValue(value, timestamp))
        return contents

    def merge(self, first: Any, second: Any) -> Any:
        first.extend(second)
        return first

    def elements(self, contents: Any, *, goes_on: bool) -> list[Any]:
        """Combine the records that the evictor left, as ``inner`` does.

        If it left none, the result is an empty list, or the result of an accumulator that has seen no record.
        """
        inner = self.inner
        if inner.changes:
            contents = [TimestampedValue(own_copy(value), timestamp) for value, timestamp in contents]
        if not contents:
            if isinstance(inner, Accumulated):
                return [inner.result(inner.create())]
            return []
        combined = inner.first(*contents[0])
        for value, timestamp in contents[1:]:
            combined = inner.add(combined, value, timestamp)
        return inner.elements(combined, goes_on=goes_on and not inner.changes)


def contents_of(spec: WindowSpec) -> WindowContents:
    """The way in which a window operation keeps its records: by its gathering function and its evictor."""
    inner: WindowContents
    if spec.gathering is WindowGathering.REDUCE:
        function = spec.gather_function
        inner = CombinedContents(function.reduce if isinstance(function, ReduceFunction) else function)
    elif spec.gathering is WindowGathering.AGGREGATE:
        inner = Accumulated(spec.gather_function)
    else:
        inner = AllRecords(shared=not spec.one_window)
    return inner if spec.evictor is None else Evictable(inner)
