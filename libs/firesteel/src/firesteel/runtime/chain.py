"""Runs the operators of a chain: a tree of segments, each a pipeline of generators, pulled in bounded slices.

A segment is a run of operators in which at most the last one can give more results than it takes records. A slice takes
a bounded number of records into the segment and pulls a bounded number of results out of it; the bound follows the time
that slices take, aiming at ``TARGET_SECONDS``. What a slice gave goes to the segment's outputs and consumers and is
pushed on a stack for each child segment. When an output is full nothing is pulled: generators stay suspended where they
are. So one record may yield ten million results while memory stays flat and a cancel gets through.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Protocol

from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.runtime.context import Stamp
from firesteel.runtime.exchange.sizes import values_bytes
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.operators import Consumer, LaterResults, Operator, Transform, create_operator
from firesteel.runtime.partitioners import Output

TARGET_SECONDS: Final = 0.002
LARGEST_SLICE: Final = 1024
LONGEST_SEGMENT: Final = 64
"""Operators; nested generators count against Python's recursion limit."""
SLICE_BYTES: Final = 256 * 1024
"""About so many bytes of results are pulled in a slice; one record that is larger passes alone."""
_SAMPLED: Final = 16
"""Smaller chunks are not measured, as long as slices are not limited by bytes."""
_now = time.perf_counter


class Writable(Protocol):
    """A channel or a consumer."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now."""


class Segment:
    """Operators that run as one pipeline, and what is behind the last of them.

    Attributes:
        operators: in order; may be empty (a source, or a sink at the head).
        later: takes the records instead, and gives results when it has some; there are no operators then.
        consumers, outputs, children: what takes the results.
        stamp: timestamp of the record in flight.
        size: records and results in a slice, by time.
        limit: the same, by bytes.
    """

    def __init__(self) -> None:
        self.operators: list[Transform] = []
        self.later: LaterResults | None = None
        self.consumers: list[Consumer] = []
        self.outputs: list[Output] = []
        self.children: list[Segment] = []
        self.stamp = Stamp()
        self.size = 1
        self.limit = LARGEST_SLICE
        self.expands = False

    def measure(self, results: list[Any]) -> None:
        """Adapt ``limit`` to the size of the records at hand."""
        if len(results) >= _SAMPLED or self.limit < LARGEST_SLICE:
            size = max(1, values_bytes(results))
            self.limit = min(LARGEST_SLICE, max(1, SLICE_BYTES * len(results) // size))

    def pipeline(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The results for these records."""
        for operator in self.operators:
            records = operator.apply(records, input_index)
            input_index = 0
        return records


class ChainPlan:
    """A chain's operators and segments.

    Attributes:
        operators: position = index in the specification.
        root: where batches go in.
        segments: all of them.
        later: those whose operator gives results later.
        consumers: all of them.
    """

    def __init__(self, spec: ChainSpec) -> None:
        self.spec = spec
        self.operators: list[Operator] = [create_operator(operator) for operator in spec.operators]
        self.segments: list[Segment] = []
        self.segment_of: dict[int, Segment] = {}
        self.consumers = [operator for operator in self.operators if isinstance(operator, Consumer)]
        self._with_outputs = {output.operator_index for output in spec.outputs}
        for output in spec.outputs:
            for helper in (output.key_selector, output.partition):
                self.operators[output.operator_index].add_helper(helper)
        self.root = self._segment(0)
        self.later = [segment for segment in self.segments if segment.later is not None]

    def _segment(self, index: int) -> Segment:
        segment = Segment()
        self.segments.append(segment)
        if isinstance(self.operators[index], Consumer):
            segment.consumers.append(self._consumer(index, segment))
            return segment
        while True:
            operator = self.operators[index]
            self.segment_of[index] = segment
            if isinstance(operator, Transform) and not self._is_plain_source(operator):
                segment.operators.append(operator)
                segment.expands = operator.expands
            children = self.spec.children[index]
            if isinstance(operator, LaterResults):
                segment.later = operator
            if (
                len(children) != 1
                or segment.later is not None
                or index in self._with_outputs
                or segment.expands
                or len(segment.operators) >= LONGEST_SEGMENT
                or isinstance(self.operators[children[0]], Consumer | LaterResults)
            ):
                break
            index = children[0]
        for child in children:
            if isinstance(self.operators[child], Consumer):
                segment.consumers.append(self._consumer(child, segment))
            else:
                segment.children.append(self._segment(child))
        return segment

    def _consumer(self, index: int, segment: Segment) -> Consumer:
        operator = self.operators[index]
        assert isinstance(operator, Consumer)
        self.segment_of[index] = segment
        return operator

    @staticmethod
    def _is_plain_source(operator: Operator) -> bool:
        return operator.spec.kind is OperatorKind.SOURCE and operator.coerce is None


class _Frame:
    """A batch on its way through a segment."""

    __slots__ = ("input_index", "left", "pipeline", "records", "segment", "stamps", "values")

    def __init__(self, segment: Segment, values: list[Any], stamps: list[int] | None, input_index: int) -> None:
        self.segment, self.values, self.stamps, self.input_index = segment, values, stamps, input_index
        self.left = len(values)
        self.records: Iterator[Any] = iter(values) if stamps is None else zip(values, stamps, strict=True)
        self.pipeline: Iterator[Any] | None = None


class ChainExecutor:
    """Moves batches through a chain, one slice for each ``step``.

    Args:
        plan: its outputs have been attached to the segments.
        guard: of the thread that calls ``step``.
        token: of the task.

    Attributes:
        records_in, records_out: running totals; out counts each record once for each edge that carries it.
    """

    def __init__(self, plan: ChainPlan, guard: Guard, token: CancelToken) -> None:
        self.plan = plan
        self.guard = guard
        self.records_in = 0
        self.records_out = 0
        self._token = token
        self._stack: list[_Frame] = []
        self._full: list[Writable] = []

    @property
    def pending(self) -> bool:
        """Whether ``step`` has something to do; the next batch may be fed when not."""
        return bool(self._stack) or self._results_ready()

    @property
    def empty(self) -> bool:
        """Whether nothing is on its way, and no results are awaited."""
        return not self._stack and all(segment.later is None or segment.later.empty for segment in self.plan.later)

    def _results_ready(self) -> bool:
        return any(segment.later is not None and segment.later.ready for segment in self.plan.later)

    def _waits_for_room(self) -> bool:
        """Whether the next frame is for an operator that takes no more before it has given results."""
        later = self._stack[-1].segment.later if self._stack else None
        return later is not None and not later.writable

    @property
    def blocked(self) -> bool:
        """Whether an output or a consumer is full: ``step`` must not be called."""
        if self._full:
            self._full = [target for target in self._full if not target.writable]
            if self._full:
                return True
        return bool(self.plan.later) and self._waits_for_room() and not self._results_ready()

    def feed(self, values: list[Any], stamps: list[int] | None, input_index: int) -> None:
        """Put in a batch; only when none is pending."""
        self.records_in += len(values)
        if values:
            self._push(self.plan.root, values, stamps, input_index)

    def _push(self, segment: Segment, values: list[Any], stamps: list[int] | None, input_index: int) -> None:
        if stamps is None:
            segment.stamp.value = None
        self._stack.append(_Frame(segment, values, stamps, input_index))

    def step(self) -> None:
        """One slice; what user code raises comes out of it with ``guard.active`` still set."""
        if self.plan.later and (not self._stack or self._waits_for_room()):
            self._take_results()
            return
        frame = self._stack[-1]
        segment = frame.segment
        if segment.later is not None:
            self._stack.pop()
            segment.later.put(frame.values, frame.stamps)
            return
        if not segment.operators:
            self._stack.pop()
            self._emit(segment, frame.values, frame.stamps)
            return
        size = min(segment.size, segment.limit)
        began = _now()
        self.guard.active = self._token
        pipeline = frame.pipeline
        if pipeline is None:
            records: Iterator[Any] = islice(frame.records, size)
            if frame.stamps is not None:
                records = _stamped(records, segment.stamp)
            pipeline = frame.pipeline = segment.pipeline(records, frame.input_index)
            frame.left -= size
        results: list[Any]
        stamps: list[Any] | None = None
        if frame.stamps is not None:
            results, stamps = [], []
            stamp = segment.stamp
            for result in islice(pipeline, size):
                results.append(result)
                stamps.append(stamp.value)
        elif segment.expands:
            results = list(islice(pipeline, size))
        else:
            results = list(pipeline)
        self.guard.active = None
        took = _now() - began
        if took > 2 * TARGET_SECONDS:
            segment.size = max(1, int(size * TARGET_SECONDS / took))
        elif took < TARGET_SECONDS / 2 and size == segment.size and (frame.left >= 0 or len(results) == size):
            segment.size = min(size * 2, LARGEST_SLICE)
        if len(results) < size or not segment.expands:
            frame.pipeline = None
            if frame.left <= 0:
                self._stack.pop()
        if results:
            segment.measure(results)
            self._emit(segment, results, stamps)

    def _take_results(self) -> None:
        """Send on what one operator has; the others come in the next steps."""
        for segment in self.plan.later:
            later = segment.later
            if later is not None and later.ready:
                self.guard.active = self._token
                run = later.take()
                self.guard.active = None
                if run.values:
                    segment.measure(run.values)
                    self._emit(segment, run.values, run.stamps)
                return

    def _emit(self, segment: Segment, values: list[Any], stamps: list[int] | None) -> None:
        guard, token = self.guard, self._token
        for consumer in segment.consumers:
            guard.active = token
            consumer.write(values, stamps)
            guard.active = None
            if not consumer.writable:
                self._full.append(consumer)
        for output in segment.outputs:
            self.records_out += len(values)
            guard.active = token
            routed = output.route(values, stamps)
            guard.active = None
            for channel, batch in routed:
                channel.write(batch)
                if not channel.writable:
                    self._full.append(channel)
        for child in reversed(segment.children):
            self._push(child, values, stamps, 0)

    def drop(self) -> None:
        """Forget what is pending; suspended user generators are closed."""
        stack, self._stack = self._stack, []
        self._full = []
        for frame in reversed(stack):
            close = getattr(frame.pipeline, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:  # a generator that objects to its end has no say here
                    pass


def _stamped(pairs: Iterator[tuple[Any, int]], stamp: Stamp) -> Iterator[Any]:
    for value, stamp.value in pairs:
        yield value
