"""Runs the operators of a chain, pulled in bounded slices.

A slice takes a bounded number of records into a segment and pulls a bounded number of results out of it; the bound
follows the time that slices take, aiming at ``TARGET_SECONDS``. What a slice gave goes to the segment's outputs and
consumers and is pushed on a stack for each child segment. When an output is full nothing is pulled: generators stay
suspended where they are. So one record may yield ten million results while memory stays flat and a cancel gets through.

Time moves between batches. A watermark goes through the tree as batches do, by way of the same stack: it enters a
segment when all records before it have left, fires timers in slices, and passes on when what these gave has gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import Any, Final, Protocol

import pyarrow as pa

from firesteel.functions.output_tag import tags_exist
from firesteel.runtime.batch import MIN_WATERMARK, Values, Watermark
from firesteel.runtime.chain_plan import LARGEST_SLICE, LONGEST_SEGMENT, SLICE_BYTES, ChainPlan, Segment
from firesteel.runtime.context import Stamp
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.operators import Operator
from firesteel.runtime.operators.columnar import Part
from firesteel.runtime.operators.timed import TIMER_DONE
from firesteel.runtime.rows import to_records
from firesteel.runtime.side_outputs import SideRecord

__all__ = ["LARGEST_SLICE", "LONGEST_SEGMENT", "SLICE_BYTES", "ChainExecutor", "ChainPlan", "Segment", "Writable"]

TARGET_SECONDS: Final = 0.002
_now = time.perf_counter
Chunk = tuple[Segment, Values, list[int] | None]
"""Records that leave a segment, with their timestamps."""


class Writable(Protocol):
    """A channel or a consumer."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now."""


class _Frame:
    """A batch on its way through a segment."""

    __slots__ = ("input_index", "left", "pipeline", "records", "segment", "stamps", "values")

    def __init__(self, segment: Segment, values: list[Any], stamps: list[int] | None, input_index: int) -> None:
        self.segment, self.values, self.stamps, self.input_index = segment, values, stamps, input_index
        self.left = len(values)
        self.records: Iterator[Any] = iter(values) if stamps is None else zip(values, stamps, strict=True)
        self.pipeline: Iterator[Any] | None = None


class _ColumnFrame:
    """Columns on their way through a segment that takes them."""

    __slots__ = ("batch", "pipeline", "segment", "stamps")

    def __init__(self, segment: Segment, batch: pa.RecordBatch, stamps: list[int] | None) -> None:
        self.segment, self.batch, self.stamps = segment, batch, stamps
        self.pipeline: Iterator[Part] | None = None


class _Advance:
    """A watermark on its way into a segment."""

    __slots__ = ("pipeline", "segment", "watermark")

    def __init__(self, segment: Segment, watermark: Watermark) -> None:
        self.segment, self.watermark = segment, watermark
        self.pipeline: Iterator[Any] | None = None


class _Pass:
    """A watermark on its way out of a segment."""

    __slots__ = ("pipeline", "segment", "watermark")

    def __init__(self, segment: Segment, watermark: Watermark) -> None:
        self.segment, self.watermark = segment, watermark
        self.pipeline = None


class _Fire:
    """Processing-time timers of a segment."""

    __slots__ = ("pipeline", "segment")

    def __init__(self, segment: Segment, pipeline: Iterator[Any]) -> None:
        self.segment = segment
        self.pipeline: Iterator[Any] | None = pipeline


class ChainExecutor:
    """Moves batches and watermarks through a chain, one slice for each ``step``.

    Args:
        plan: its outputs have been attached to the segments.
        guard: of the thread that calls ``step``.
        token: of the task.

    Attributes:
        records_in, records_out: running totals; out counts each record once for each edge that carries it.
        input_watermark: of the last watermark that went in.
        output_watermark: of the last one that left a segment: what goes to other tasks and to sinks.
    """

    def __init__(self, plan: ChainPlan, guard: Guard, token: CancelToken) -> None:
        self.plan = plan
        self.guard = guard
        self.records_in = 0
        self.records_out = 0
        self.input_watermark = MIN_WATERMARK
        self.output_watermark = MIN_WATERMARK
        self._token = token
        self._stack: list[_Frame | _ColumnFrame | _Advance | _Pass | _Fire] = []
        self._full: list[Writable] = []

    @property
    def pending(self) -> bool:
        """Whether ``step`` has something to do; the next batch may be fed when not."""
        return bool(self._stack) or (bool(self.plan.later) and self._results_ready())

    @property
    def empty(self) -> bool:
        """Whether nothing is on its way, and no results are awaited."""
        return not self._stack and all(segment.later is None or segment.later.empty for segment in self.plan.later)

    def _results_ready(self) -> bool:
        return any(segment.later is not None and segment.later.ready for segment in self.plan.later)

    def _waits_for_room(self) -> bool:
        """Whether the next frame is for an operator that takes no more before it has given results."""
        frame = self._stack[-1] if self._stack else None
        later = None if frame is None or isinstance(frame, _Pass) else frame.segment.later
        return later is not None and not later.writable

    @property
    def blocked(self) -> bool:
        """Whether an output or a consumer is full: ``step`` must not be called."""
        if self._full:
            self._full = [target for target in self._full if not target.writable]
            if self._full:
                return True
        return bool(self.plan.later) and self._waits_for_room() and not self._results_ready()

    # -- what goes in, when nothing is pending

    def feed(self, values: Values, stamps: list[int] | None, input_index: int) -> None:
        """Put in a batch."""
        self.records_in += len(values)
        if len(values):
            self._push(self.plan.root, values, stamps, input_index)

    def advance(self, watermark: Watermark) -> None:
        """Put in a watermark, or a status alone."""
        self.input_watermark = max(self.input_watermark, watermark.timestamp)
        self._stack.append(_Advance(self.plan.root, watermark))

    def fire(self, now: int) -> None:
        """Fire the processing-time timers that are due at this time (epoch ms)."""
        for segment in self.plan.segments:
            timed = segment.timed
            if timed is not None:
                earliest = timed.heap_timers.processing.earliest
                if earliest is not None and earliest <= now:
                    self._stack.append(_Fire(segment, timed.advance_processing_time(now)))

    def earliest_timer(self) -> int | None:
        """When the next processing-time timer is due (epoch ms)."""
        found = (s.timed.heap_timers.processing.earliest for s in self.plan.segments if s.timed is not None)
        return min((timestamp for timestamp in found if timestamp is not None), default=None)

    def emit_watermarks(self) -> None:
        """Let the operators that make watermarks look at the clock."""
        for segment in self.plan.segments:
            if segment.watermarks is not None:
                self.guard.active = self._token
                watermark = segment.watermarks.periodic()
                self.guard.active = None
                if watermark is not None:
                    self._stack.append(_Pass(segment, watermark))

    def _push(self, segment: Segment, values: Values, stamps: list[int] | None, input_index: int) -> None:
        """Rows or columns, as the segment takes them."""
        if stamps is None:
            segment.stamp.value = None
        if segment.columns and isinstance(values, list):
            values = segment.columns[0].input.from_records(values)
        if isinstance(values, pa.RecordBatch):
            if segment.takes(values):
                self._stack.append(_ColumnFrame(segment, values, stamps))
                return
            values = to_records(values)
        self._stack.append(_Frame(segment, values, stamps, input_index))

    # -- slices

    def step(self) -> None:
        """One slice; what user code raises comes out of it with ``guard.active`` still set."""
        if self.plan.later and (not self._stack or self._waits_for_room()):
            self._take_results()
            return
        frame = self._stack[-1]
        segment = frame.segment
        if isinstance(frame, _ColumnFrame):
            self._step_columns(frame)
            return
        if not isinstance(frame, _Frame):
            self._step_time(frame)
            return
        if not segment.operators:
            if segment.later is not None:
                self._stack.pop()
                segment.later.put(frame.values, frame.stamps)
                return
            if segment.watermarks is not None:
                self._assign(frame)
                return
            self._stack.pop()
            self._emit(((segment, frame.values, frame.stamps),))
            return
        size = min(segment.size, segment.limit)
        began = _now()
        self.guard.active = self._token
        pipeline = frame.pipeline
        own_stamps = segment.sets_stamps
        if pipeline is None:
            records: Iterator[Any] = islice(frame.records, size)
            if frame.stamps is not None:
                records = _stamped(records, segment.stamp)
            elif own_stamps:
                records = _unstamped(records, segment.stamp)
            pipeline = frame.pipeline = segment.pipeline(records, frame.input_index)
            frame.left -= size
        results: list[Any]
        stamps: list[Any] | None = None
        if frame.stamps is not None or own_stamps:
            results, stamps = _with_stamps(pipeline, size, segment.stamp)
        elif segment.expands:
            results = list(islice(pipeline, size))
        else:
            results = list(pipeline)
        self.guard.active = None
        _adapt(segment, size, _now() - began, frame.left >= 0 or len(results) == size)
        if len(results) < size or not segment.expands:
            frame.pipeline = None
            if frame.left <= 0:
                self._stack.pop()
        if results:
            segment.measure(results)
            self._route(segment, results, stamps)

    def _step_columns(self, frame: _ColumnFrame) -> None:
        """The next batch of results."""
        segment = frame.segment
        if not segment.columns:
            self._stack.pop()
            self._emit(((segment, frame.batch, frame.stamps),))
            return
        if frame.pipeline is None:
            frame.pipeline = segment.column_pipeline(frame.batch, frame.stamps)
        self.guard.active = self._token
        part = next(frame.pipeline, None)
        self.guard.active = None
        if part is None:
            self._stack.pop()
        elif part[0].num_rows:
            self._emit(((segment, *part),))

    def _step_time(self, frame: _Advance | _Pass | _Fire) -> None:
        segment = frame.segment
        if isinstance(frame, _Pass):
            self._stack.pop()
            self._pass_on(segment, frame.watermark)
            return
        if isinstance(frame, _Advance) and frame.pipeline is None:
            watermark, timed = frame.watermark, segment.timed
            segment.stamp.watermark = max(segment.stamp.watermark, watermark.timestamp)
            if segment.watermarks is not None and not segment.watermarks.passes(watermark):
                self._stack.pop()
                return
            if segment.later is not None:  # it leaves behind the results of the records before it
                self._stack.pop()
                segment.later.put_watermark(watermark)
                return
            if timed is None or watermark.timestamp <= timed.heap_timers.watermark:
                self._stack.pop()
                self._pass_on(segment, watermark)
                return
            frame.pipeline = timed.advance_watermark(watermark.timestamp)
        assert frame.pipeline is not None
        size = min(segment.size, segment.limit)
        began = _now()
        self.guard.active = self._token
        results, stamps, done = _pull_timers(frame.pipeline, size, segment.stamp, began + TARGET_SECONDS)
        self.guard.active = None
        _adapt(segment, size, _now() - began, len(results) == size)
        if done:
            self._stack.pop()
            if isinstance(frame, _Advance):
                self._stack.append(_Pass(segment, frame.watermark))
        if results:
            segment.measure(results)
            self._route(segment, results, stamps)

    def _take_results(self) -> None:
        """Send on what one operator has; the others come in the next steps."""
        for segment in self.plan.later:
            later = segment.later
            if later is not None and later.ready:
                self.guard.active = self._token
                run = later.take()
                self.guard.active = None
                if run.watermark is not None:
                    self._stack.append(_Pass(segment, run.watermark))
                elif run.values:
                    segment.measure(run.values)
                    self._emit(((segment, run.values, run.stamps),))
                return

    def _assign(self, frame: _Frame) -> None:
        """A slice of an operator that assigns timestamps and makes watermarks; it ends where one is emitted."""
        segment = frame.segment
        operator = segment.watermarks
        assert operator is not None
        size = min(segment.size, segment.limit)
        start = len(frame.values) - frame.left
        values = frame.values[start : start + size]
        stamps = None if frame.stamps is None else frame.stamps[start : start + size]
        began = _now()
        self.guard.active = self._token
        stamps, watermark = operator.take(values, stamps)
        self.guard.active = None
        _adapt(segment, size, _now() - began, len(values) == size)
        frame.left -= len(values)
        if frame.left <= 0:
            self._stack.pop()
        if watermark is not None:
            self._stack.append(_Pass(segment, watermark))
        segment.measure(values)
        self._emit(((segment, values, stamps),))

    # -- what comes out

    def _route(self, segment: Segment, values: list[Any], stamps: list[Any] | None) -> None:
        """Emit results: those of side outputs apart, and those without timestamps apart from those with."""
        operator = segment.operators[-1]
        if operator.may_tag and not operator.tagged and tags_exist():
            operator.enable_tags()
        chunks: list[Chunk] = [(segment, values, stamps)]
        if operator.tagged:
            chunks = _split(operator, segment, values, stamps)
        if stamps is not None and segment.timed is not None:
            chunks = [run for chunk in chunks for run in _runs(chunk)]
        self._emit(chunks)

    def _emit(self, chunks: Sequence[Chunk]) -> None:
        for segment, values, stamps in chunks:
            self._write(segment, values, stamps)
        for segment, values, stamps in reversed(chunks):
            for child in reversed(segment.children):
                self._push(child, values, stamps, 0)

    def _write(self, segment: Segment, values: Values, stamps: list[int] | None) -> None:
        guard, token = self.guard, self._token
        records = to_records(values) if segment.consumers else []
        for consumer in segment.consumers:
            guard.active = token
            consumer.write(records, stamps)
            guard.active = None
            if not consumer.writable:
                self._full.append(consumer)
        for output in segment.outputs:
            self.records_out += len(values)
            guard.active = token
            if isinstance(values, list):
                routed = output.route(values, stamps)
            else:
                routed = output.route_columns(values, stamps)
            guard.active = None
            for channel, batch in routed:
                channel.write(batch)
                if not channel.writable:
                    self._full.append(channel)

    def _pass_on(self, segment: Segment, watermark: Watermark) -> None:
        self.output_watermark = max(self.output_watermark, watermark.timestamp)
        together = (segment, *segment.sides.values())
        for part in together:
            for output in part.outputs:
                for channel in output.channels:
                    channel.send(watermark)
        for part in reversed(together):
            for child in reversed(part.children):
                self._stack.append(_Advance(child, watermark))

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


def _adapt(segment: Segment, size: int, took: float, full: bool) -> None:
    """Fit the size of slices to the time that the last one took; ``full``: there was more for it to do."""
    if took > 2 * TARGET_SECONDS:
        segment.size = max(1, int(size * TARGET_SECONDS / took))
    elif took < TARGET_SECONDS / 2 and size == segment.size and full:
        segment.size = min(size * 2, LARGEST_SLICE)


def _stamped(pairs: Iterator[tuple[Any, int]], stamp: Stamp) -> Iterator[Any]:
    for value, stamp.value in pairs:
        yield value


def _unstamped(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    for value in records:
        stamp.value = None
        yield value


def _with_stamps(pipeline: Iterator[Any], size: int, stamp: Stamp) -> tuple[list[Any], list[int | None]]:
    results, stamps = [], []
    for result in islice(pipeline, size):
        results.append(result)
        stamps.append(stamp.value)
    return results, stamps


def _pull_timers(
    pipeline: Iterator[Any], size: int, stamp: Stamp, deadline: float
) -> tuple[list[Any], list[int | None], bool]:
    """Results of timers, and whether there were no more; ends after a timer when the time is over."""
    results: list[Any] = []
    stamps: list[int | None] = []
    for result in pipeline:
        if result is TIMER_DONE:
            if _now() >= deadline:
                return results, stamps, False
            continue
        results.append(result)
        stamps.append(stamp.value)
        if len(results) >= size:
            return results, stamps, False
    return results, stamps, True


def _split(operator: Operator, segment: Segment, values: list[Any], stamps: list[Any] | None) -> list[Chunk]:
    """Results, and for each side output that is read its records."""
    if not any(value.__class__ is SideRecord or operator.is_tagged(value) for value in values):
        return [(segment, values, stamps)]
    main: tuple[list[Any], list[Any]] = ([], [])
    sides: dict[str, tuple[list[Any], list[Any]]] = {}
    for value, stamp in zip(values, stamps or repeat(None), strict=stamps is not None):
        if operator.is_tagged(value):  # it was yielded before the operator knew that there are tags
            value = operator.side_record(value)
        if value.__class__ is SideRecord:
            part = sides.setdefault(value.tag_id, ([], []))
            part[0].append(value.value)
        else:
            part = main
            part[0].append(value)
        part[1].append(stamp)
    parts = [(segment, main)] if main[0] else []
    parts += [(segment.sides[tag], part) for tag, part in sides.items() if tag in segment.sides]
    return [(target, part[0], None if stamps is None else part[1]) for target, part in parts]


def _runs(chunk: Chunk) -> list[Chunk]:
    """Cut a chunk so that in each part either all records have timestamps or none has."""
    segment, values, stamps = chunk
    if stamps is None or None not in stamps:
        return [chunk]
    runs: list[Chunk] = []
    for without, pairs in groupby(zip(values, stamps, strict=True), key=lambda pair: pair[1] is None):
        part = list(pairs)
        runs.append((segment, [value for value, _ in part], None if without else [stamp for _, stamp in part]))
    return runs
