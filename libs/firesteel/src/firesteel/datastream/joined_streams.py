"""Functions that joins and co-groups run in slots: marks of a record's side, key selectors, and window functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from typing_extensions import override

from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError
from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import Function, KeySelector, MapFunction, RuntimeContext
from firesteel.functions.join_functions import CoGroupFunction, JoinFunction
from firesteel.functions.window_functions import WindowFunction

__all__ = ["JoinTag", "OnGroups", "OnPairs", "OnPairsFlat", "TaggedUnion", "UnionKey", "UnionKeys"]


class TaggedUnion(NamedTuple):
    """A record of one of two streams; what assigners, triggers and evictors of a join see.

    Attributes:
        side: 0 for the first stream, 1 for the second.
        value: the record.
    """

    side: int
    value: Any

    def is_one(self) -> bool:
        """Returns whether it is of the first stream."""
        return self.side == 0

    def is_two(self) -> bool:
        """Returns whether it is of the second stream."""
        return self.side == 1


class JoinTag(MapFunction[Any, TaggedUnion]):
    """Marks the records of one side."""

    def __init__(self, side: int) -> None:
        self.side = side

    @override
    def map(self, value: Any) -> TaggedUnion:
        return TaggedUnion(self.side, value)


class UnionKey(KeySelector[TaggedUnion, Any]):
    """The key of a marked record, by the selector of its side."""

    def __init__(self, selectors: tuple[Any, Any]) -> None:
        self.selectors = selectors

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens the selectors of both sides."""
        for selector in self.selectors:
            if isinstance(selector, Function):
                selector.open(runtime_context)
        self._keys = [s.get_key if isinstance(s, KeySelector) else s for s in self.selectors]

    def close(self) -> None:
        """Closes the selectors of both sides."""
        with ExitStack() as closing:  # all of them, whatever one raises
            for selector in self.selectors:
                if isinstance(selector, Function):
                    closing.callback(selector.close)

    def get_key(self, value: TaggedUnion) -> Any:
        """The key by the selector of the record's side."""
        return self._keys[value.side](value.value)

    def __getstate__(self) -> dict[str, Any]:
        return {"selectors": self.selectors}


class UnionKeys(UnionKey, ManyKeys):
    """The keys of marked records where the key of a side is computed from columns."""

    def keys_of(self, records: Sequence[Any]) -> list[Any]:
        """The keys of many records at once."""
        keys_in_order: list[Any] = [None] * len(records)
        for side, selector in enumerate(self.selectors):
            indexes = [index for index, record in enumerate(records) if record.side == side]
            values = [records[index].value for index in indexes]
            keys = selector.keys_of(values) if isinstance(selector, ManyKeys) else call_each(self._keys[side], values)
            for index, key in zip(indexes, keys, strict=True):
                keys_in_order[index] = key
        return keys_in_order


class OnGroups(WindowFunction[TaggedUnion, Any, Any, Any]):
    """A co-group: sorts the records of a window by their side, then calls the program's function with both groups."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.blocking = bool(getattr(function, "blocking", False))  # type: ignore[misc]

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens the program's function."""
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        """Closes the program's function."""
        if isinstance(self.function, Function):
            self.function.close()

    @override
    def apply(self, key: Any, window: Any, inputs: Iterable[TaggedUnion]) -> Iterable[Any] | None:
        groups: tuple[list[Any], list[Any]] = ([], [])
        for side, value in inputs:
            groups[side].append(value)
        return self.results(*groups)

    def results(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        """Call the program's function with the records of both sides."""
        function = self.function
        join_groups = function.co_group if isinstance(function, CoGroupFunction) else function
        return join_groups(first, second)


class OnPairs(OnGroups):
    """A join: calls the program's function with each pair, for one result."""

    @override
    def results(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        function = self.function
        join = function.join if isinstance(function, JoinFunction) else function
        for first_record in first:
            for second_record in second:
                yield join(first_record, second_record)


class OnPairsFlat(OnGroups):
    """A join: calls the program's function with each pair, for any number of results."""

    @override
    def results(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        for first_record in first:
            for second_record in second:
                results = self.function.join(first_record, second_record)
                if results is None:
                    continue
                if not hasattr(type(results), "__iter__"):
                    raise ProgramError(
                        f"{type(self.function).__name__}.join returned {results!r}; a FlatJoinFunction returns an "
                        "iterable, yields its results, or returns None (a JoinFunction returns one result)"
                    )
                yield from results
