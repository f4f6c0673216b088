"""Joins of keyed streams by nearness in time. Flink's Java API in snake case; PyFlink has none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from firesteel.common.time import Span
from firesteel.common.typeinfo import TypeDescriptor
from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream import checks
from firesteel.datastream.time_methods import check_tag, declare_tag
from firesteel.datastream.timestamps import warn_without_timestamps
from firesteel.functions.join_functions import ProcessJoinFunction
from firesteel.functions.output_tag import OutputTag
from firesteel.graph.specs import OperatorKind
from firesteel.graph.stream_graph import StreamInput
from firesteel.windowing.checks import check_span

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream, KeyedStream

__all__ = ["IntervalJoin", "IntervalJoined"]


class IntervalJoin:
    """Two keyed streams that are to be joined; ``between`` comes next."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        self._streams = (stream1, stream2)

    def in_event_time(self) -> Self:
        """Joins by the records' timestamps, which is what happens anyhow."""
        return self

    def in_processing_time(self) -> Self:
        """Refused, as in Flink.

        Raises:
            UnsupportedFeatureError: always.
        """
        raise UnsupportedFeatureError("Time-bounded stream joins are only supported in event time")

    def between(self, lower_bound: Span, upper_bound: Span) -> IntervalJoined:
        """Says how far the right record's time may be from the left one's; bounds may be negative.

        A pair is ``left + lower_bound <= right <= left + upper_bound``.

        Raises:
            TypeError: a bound is no span of time.
            ValueError: the lower one is above the upper one.
        """
        lower = check_span("the lower bound of between()", lower_bound, -(2**62))
        upper = check_span("the upper bound of between()", upper_bound, -(2**62))
        if lower > upper:
            raise ValueError(f"between(): the lower bound {lower} ms is above the upper bound {upper} ms")
        return IntervalJoined(self._streams, lower, upper)

    def process(self, function: Any, output_type: Any = None) -> Any:
        """Too early.

        Raises:
            GraphError: always: ``between`` is missing.
        """
        raise GraphError("interval_join(...).process(...) lacks the interval: put .between(lower, upper) before it")


class IntervalJoined:
    """Streams and interval are known; ``process`` comes last."""

    def __init__(self, streams: tuple[KeyedStream, KeyedStream], lower: int, upper: int) -> None:
        self._streams, self._lower, self._upper = streams, lower, upper
        self._exclusive = [False, False]
        self._late_tags: list[OutputTag[Any] | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        """A pair whose distance is just the lower bound is none."""
        self._exclusive[0] = True
        return self

    def upper_bound_exclusive(self) -> Self:
        """A pair whose distance is just the upper bound is none."""
        self._exclusive[1] = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records of the left stream that are behind the watermark to a side output; else they are dropped."""
        return self._late(0, "side_output_left_late_data", output_tag)

    def side_output_right_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Sends records of the right stream that are behind the watermark to a side output; else they are dropped."""
        return self._late(1, "side_output_right_late_data", output_tag)

    def process(
        self, process_join_function: ProcessJoinFunction[Any, Any, Any], output_type: TypeDescriptor | None = None
    ) -> DataStream:
        """Calls the function with each pair; results have the later timestamp of the two.

        Raises:
            TypeError: it is no ``ProcessJoinFunction``.
            ValueError: with exclusive bounds there is nothing between them.
        """
        from firesteel.datastream.data_stream import DataStream

        checks.check_class("process", process_join_function, ProcessJoinFunction)
        lower, upper = self._lower + self._exclusive[0], self._upper - self._exclusive[1]
        if lower > upper:
            raise ValueError(
                f"between({self._lower} ms, {self._upper} ms) with exclusive bounds leaves no time between them (times "
                "are whole ms)"
            )
        declared = checks.declared_type("output_type", output_type)
        left, right = self._streams
        for stream in self._streams:
            warn_without_timestamps("an interval join", stream._inputs)
        made = left._environment._add(
            "Interval Join",
            OperatorKind.INTERVAL_JOIN,
            process_join_function,
            (left._inputs, right._inputs),
            coerce_to=checks.coerced(declared),
            key_selectors=(left._key_selector, right._key_selector),
            extra={"lower": lower, "upper": upper, "late_tags": tuple(self._late_tags)},
        )
        for tag, side in zip(self._late_tags, ("left", "right"), strict=True):
            if tag is not None:
                declare_tag(made, tag, f"side_output_{side}_late_data")
        return DataStream(left._environment, (StreamInput(made),), declared)

    def _late(self, side: int, method: str, tag: Any) -> Self:
        self._late_tags[side] = check_tag(method, tag)
        return self
