"""Joins and groups of two streams by key and window. Flink's Java API in snake case; PyFlink has none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeAlias, TypeVar

from firesteel.common.typeinfo import TypeDescriptor
from firesteel.core.errors import GraphError, ProgramError
from firesteel.datastream import checks
from firesteel.datastream.column_methods import is_column_key
from firesteel.expressions import Expression
from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import Function, KeySelector, MapFunction, RuntimeContext
from firesteel.functions.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.window_functions import WindowFunction
from firesteel.windowing.assigners import WindowAssigner
from firesteel.windowing.evictors import Evictor
from firesteel.windowing.triggers import Trigger

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream
    from firesteel.datastream.windowed_stream import WindowedStream

__all__ = ["CoGroupedStreams", "JoinedStreams", "TaggedUnion"]

S = TypeVar("S", bound="_Windowed")
Key: TypeAlias = Callable[[Any], Any] | KeySelector[Any, Any] | str | Expression | Sequence[str | Expression]


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


class _Tag(MapFunction[Any, TaggedUnion]):
    """Marks the records of one side."""

    def __init__(self, side: int) -> None:
        self.side = side

    def map(self, value: Any) -> TaggedUnion:
        return TaggedUnion(self.side, value)


class _UnionKey(KeySelector[TaggedUnion, Any]):
    """The key of a marked record, by the selector of its side."""

    def __init__(self, selectors: tuple[Any, Any]) -> None:
        self.selectors = selectors

    def open(self, runtime_context: RuntimeContext) -> None:
        for selector in self.selectors:
            if isinstance(selector, Function):
                selector.open(runtime_context)
        self._keys = [s.get_key if isinstance(s, KeySelector) else s for s in self.selectors]

    def close(self) -> None:
        with ExitStack() as closing:  # all of them, whatever one raises
            for selector in self.selectors:
                if isinstance(selector, Function):
                    closing.callback(selector.close)

    def get_key(self, value: TaggedUnion) -> Any:
        return self._keys[value.side](value.value)

    def __getstate__(self) -> dict[str, Any]:
        return {"selectors": self.selectors}


class _UnionKeys(_UnionKey, ManyKeys):
    """The same where a key is computed from columns."""

    def keys_of(self, records: Sequence[Any]) -> list[Any]:
        found: list[Any] = [None] * len(records)
        for side, selector in enumerate(self.selectors):
            at = [index for index, record in enumerate(records) if record.side == side]
            values = [records[index].value for index in at]
            keys = selector.keys_of(values) if isinstance(selector, ManyKeys) else map(self._keys[side], values)
            for index, key in zip(at, keys, strict=True):
                found[index] = key
        return found


class _OnGroups(WindowFunction[TaggedUnion, Any, Any, Any]):
    """Sorts the records of a window by their side, then calls the program's function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.blocking = bool(getattr(function, "blocking", False))  # type: ignore[misc]

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.function, Function):
            self.function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.function, Function):
            self.function.close()

    def apply(self, key: Any, window: Any, inputs: Iterable[TaggedUnion]) -> Iterable[Any] | None:
        groups: tuple[list[Any], list[Any]] = ([], [])
        for side, value in inputs:
            groups[side].append(value)
        return self.results(*groups)

    def results(self, first: list[Any], second: list[Any]) -> Iterable[Any] | None:
        function = self.function
        found: Iterable[Any] | None
        found = function.co_group(first, second) if isinstance(function, CoGroupFunction) else function(first, second)
        return found


class _OnPairs(_OnGroups):
    def results(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        function = self.function
        join = function.join if isinstance(function, JoinFunction) else function
        for left in first:
            for right in second:
                yield join(left, right)


class _OnPairsFlat(_OnGroups):
    def results(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        for left in first:
            for right in second:
                results = self.function.join(left, right)
                if results is None:
                    continue
                if not hasattr(type(results), "__iter__"):
                    raise ProgramError(
                        f"{type(self.function).__name__}.join returned {results!r}; a FlatJoinFunction returns an "
                        "iterable, yields its results, or returns None (a JoinFunction returns one result)"
                    )
                yield from results


def _key(stream: DataStream, key_selector: Any) -> Any:
    if is_column_key(key_selector):
        return stream._column_key(key_selector)[0]
    return checks.key_function("key_selector", key_selector)


class _Streams:
    """Two streams that are to be joined or grouped; ``where`` comes next."""

    _verb = "join"

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self._streams = (stream1, stream2)

    def window(self, assigner: Any) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``where`` and ``equal_to`` are missing.
        """
        raise GraphError(
            f"a.{self._verb}(b).window(...) lacks the keys: write "
            f"a.{self._verb}(b).where(key_of_a).equal_to(key_of_b).window(...).apply(function)"
        )


class JoinedStreams(_Streams):
    """Two streams that are to be joined: ``a.join(b).where(f).equal_to(g).window(w).apply(h)``."""

    def where(self, key_selector: Key) -> Where[WithWindowJoined]:
        """Says what the key of a record of the first stream is; as for ``key_by``."""
        return Where(self._streams, _key(self._streams[0], key_selector), WithWindowJoined, self._verb)


class CoGroupedStreams(_Streams):
    """Two streams that are to be grouped: ``a.co_group(b).where(f).equal_to(g).window(w).apply(h)``."""

    _verb = "co_group"

    def where(self, key_selector: Key) -> Where[WithWindowGrouped]:
        """Says what the key of a record of the first stream is; as for ``key_by``."""
        return Where(self._streams, _key(self._streams[0], key_selector), WithWindowGrouped, self._verb)


class Where(Generic[S]):
    """The first key is known; ``equal_to`` comes next."""

    def __init__(self, streams: tuple[DataStream, DataStream], key_selector: Any, windowed: type[S], verb: str) -> None:
        self._streams, self._selector, self._windowed, self._verb = streams, key_selector, windowed, verb

    def equal_to(self, key_selector: Key) -> EqualTo[S]:
        """Says what the key of a record of the second stream is; as for ``key_by``."""
        selectors = self._selector, _key(self._streams[1], key_selector)
        return EqualTo(self._streams, selectors, self._windowed)

    def window(self, assigner: Any) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``equal_to`` is missing.
        """
        raise GraphError(
            f"a.{self._verb}(b).where(...).window(...) lacks the key of the second stream: put .equal_to(key_of_b) "
            "before .window(...)"
        )


class EqualTo(Generic[S]):
    """Both keys are known; ``window`` comes next."""

    def __init__(self, streams: tuple[DataStream, DataStream], selectors: Any, windowed: type[S]) -> None:
        self._streams, self._selectors, self._windowed = streams, selectors, windowed

    def window(self, assigner: WindowAssigner[Any, Any]) -> S:
        """Says in which windows records are brought together. Assigners see ``TaggedUnion`` objects."""
        return self._windowed(self._streams, self._selectors, assigner)

    def apply(self, function: Any, output_type: Any = None) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``window`` is missing.
        """
        raise GraphError(
            "apply() needs windows, since a join over unbounded streams would keep everything for ever: put "
            ".window(assigner) before it, or use interval_join() of keyed streams"
        )


class _Windowed:
    """Streams, keys and windows are known."""

    _name = "CoGroup"

    def __init__(
        self, streams: tuple[DataStream, DataStream], selectors: Any, assigner: WindowAssigner[Any, Any]
    ) -> None:
        tagged = [stream._values().map(_Tag(side)) for side, stream in enumerate(streams)]
        for side, stream in enumerate(tagged):
            made, giver = stream._inputs[0].source, streams[side]._inputs[0].source
            made.name, made.internal = f"Tag input {side + 1}", True
            made.parallelism, made.non_parallel = giver.parallelism, giver.non_parallel  # no exchange in between
        key = (_UnionKeys if any(isinstance(one, ManyKeys) for one in selectors) else _UnionKey)(selectors)
        self._windowed: WindowedStream = tagged[0].union(tagged[1]).key_by(key).window(assigner)

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Sets when windows are evaluated, as of ``WindowedStream``."""
        self._windowed.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Sets which records are taken out of a window, as of ``WindowedStream``; both sides are in one list."""
        self._windowed.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Keeps windows so long behind their end, as of ``WindowedStream``."""
        self._windowed.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records that come too late to a side output, as ``TaggedUnion`` objects."""
        self._windowed.side_output_late_data(output_tag)
        return self

    def _apply(self, function: WindowFunction[Any, Any, Any, Any], output_type: TypeDescriptor | None) -> DataStream:
        stream = self._windowed.apply(function, output_type)
        stream.name(self._name)
        return stream


class WithWindowJoined(_Windowed):
    """A join; ``apply`` comes next."""

    _name = "Join"

    def apply(
        self,
        function: Callable[[Any, Any], Any] | JoinFunction[Any, Any, Any] | FlatJoinFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Calls the function with each pair of records of one key in one window.

        A ``JoinFunction`` or callable gives one result for each pair, a ``FlatJoinFunction`` any number.
        """
        if isinstance(function, FlatJoinFunction):
            checks.check_class("apply", function, FlatJoinFunction)
            return self._apply(_OnPairsFlat(function), output_type)
        checks.check_function("apply", function, JoinFunction)
        return self._apply(_OnPairs(function), output_type)


class WithWindowGrouped(_Windowed):
    """A co-group; ``apply`` comes next."""

    def apply(
        self,
        function: Callable[[list[Any], list[Any]], Iterable[Any] | None] | CoGroupFunction[Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """Calls the function with all records of the first and all of the second stream of one key in one window."""
        checks.check_function("apply", function, CoGroupFunction)
        return self._apply(_OnGroups(function), output_type)
