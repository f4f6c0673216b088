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
from itertools import chain, islice, repeat
from typing import Any, Protocol

import pyarrow as pa

from firesteel.common.own_copies import own_copies
from firesteel.functions.output_tag import tags_exist
from firesteel.runtime.batch import MIN_WATERMARK, Timestamps, Values, Watermark
from firesteel.runtime.chain_frames import ROWS_AT_THE_DOOR, Advance, ColumnFrame, Fire, Frame, Pass, Pieces
from firesteel.runtime.chain_plan import LARGEST_SLICE, LONGEST_SEGMENT, SLICE_BYTES, ChainPlan, Segment
from firesteel.runtime.chain_slices import (
    TARGET_SECONDS,
    Chunk,
    adapt,
    adapt_columns,
    all_as_given,
    pull_timers,
    runs,
    split,
    stamped,
    unstamped,
    with_stamps,
)
from firesteel.runtime.columns import Part, as_array
from firesteel.runtime.interrupts import CancelToken, Guard
from firesteel.runtime.rows import to_list, to_records
from firesteel.runtime.side_outputs import SidePart

__all__ = ["LARGEST_SLICE", "LONGEST_SEGMENT", "SLICE_BYTES", "ChainExecutor", "ChainPlan", "Segment", "Writable"]

_now = time.perf_counter


class Writable(Protocol):
    """A channel or a consumer."""

    @property
    def writable(self) -> bool:
        """Whether it takes more now."""


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
        self._stack: list[Frame | ColumnFrame | Pieces | Advance | Pass | Fire] = []
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
        later = None if frame is None or isinstance(frame, Pass) else frame.segment.later
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

    def feed(self, values: Values, stamps: Timestamps, input_index: int) -> None:
        """Put in a batch."""
        self.records_in += len(values)
        if len(values):
            self._push(self.plan.root, values, stamps, input_index)

    def advance(self, watermark: Watermark) -> None:
        """Put in a watermark, or a status alone."""
        self.input_watermark = max(self.input_watermark, watermark.timestamp)
        self._stack.append(Advance(self.plan.root, watermark))

    def fire(self, now: int) -> None:
        """Fire the processing-time timers that are due at this time (epoch ms)."""
        for segment in self.plan.segments:
            timed = segment.timed
            if timed is not None:
                earliest = timed.heap_timers.processing.earliest
                if earliest is not None and earliest <= now:
                    self._stack.append(Fire(segment, timed.advance_processing_time(now)))

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
                    self._stack.append(Pass(segment, watermark))

    def _push(self, segment: Segment, values: Values, stamps: Timestamps, input_index: int) -> None:
        """Rows or columns, as the segment takes them."""
        if stamps is None:
            segment.stamp.value = None
        if segment.columns and isinstance(values, list):
            values = segment.columns[0].input.from_records(values)
        if isinstance(values, pa.RecordBatch):
            if segment.takes(values):
                self._stack.append(ColumnFrame(segment, values, as_array(stamps)))
                return
            if values.num_rows > ROWS_AT_THE_DOOR:
                self._stack.append(Pieces(segment, values, as_array(stamps), input_index, inward=True))
                return
            values = to_records(values)
        self._stack.append(Frame(segment, values, to_list(stamps), input_index))

    # -- slices

    def step(self) -> None:
        """One slice; what user code raises comes out of it with ``guard.active`` still set."""
        if self.plan.later and (not self._stack or self._waits_for_room()):
            self._take_results()
            return
        frame = self._stack[-1]
        segment = frame.segment
        if isinstance(frame, ColumnFrame):
            self._step_columns(frame)
            return
        if isinstance(frame, Pieces):
            self._step_pieces(frame)
            return
        if not isinstance(frame, Frame):
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
                records = stamped(records, segment.stamp)
            elif own_stamps:
                records = unstamped(records, segment.stamp)
            if segment.looks_ahead is not None:
                start = len(frame.values) - frame.left
                segment.looks_ahead.look_ahead(frame.values[start : start + size], frame.input_index)
            pipeline = frame.pipeline = segment.pipeline(records, frame.input_index)
            frame.left -= size
        results: list[Any]
        stamps: list[Any] | None = None
        if frame.stamps is not None or own_stamps:
            results, stamps = with_stamps(pipeline, size, segment.stamp, copies=segment.copies)
        else:
            taken = islice(pipeline, size) if segment.expands else pipeline
            results = all_as_given(taken) if segment.copies else list(taken)
        self.guard.active = None
        adapt(segment, size, _now() - began, frame.left >= 0 or len(results) == size)
        if len(results) < size or not segment.expands:
            frame.pipeline = None
            if frame.left <= 0:
                self._stack.pop()
        if results:
            segment.measure(results)
            self._route(segment, results, stamps)

    def _step_columns(self, frame: ColumnFrame) -> None:
        """The next batch of results."""
        segment = frame.segment
        if segment.watermarks is not None:
            self._assign_columns(frame)
            return
        if not segment.columns:
            self._stack.pop()
            self._emit(((segment, frame.batch, frame.stamps),))
            return
        pipeline = frame.pipeline or frame.next_pipeline()
        began = _now()
        self.guard.active = self._token
        part = next(pipeline, None)
        self.guard.active = None
        frame.took += _now() - began
        if part is None:
            adapt_columns(segment, frame.size, frame.took)
            frame.pipeline = None
            if frame.start >= len(frame.batch):
                self._stack.pop()
        else:
            self._emit_part(segment, part)

    def _emit_part(self, segment: Segment, part: Part | SidePart) -> None:
        if isinstance(part, SidePart):
            side = segment.sides.get(part.tag_id)
            if side is not None:
                self._emit(((side, part.values, part.stamps),))
        elif part[0].num_rows:
            self._emit(((segment, *part),))

    def _step_pieces(self, frame: Pieces) -> None:
        batch, stamps = frame.take()
        if frame.done:
            self._stack.pop()
        if frame.inward:
            self._push(frame.segment, batch, stamps, frame.input_index)
        else:
            self._emit(((frame.segment, batch, stamps),))

    def _step_time(self, frame: Advance | Pass | Fire) -> None:
        segment = frame.segment
        if isinstance(frame, Pass):
            self._stack.pop()
            self._pass_on(segment, frame.watermark)
            return
        if isinstance(frame, Advance) and frame.pipeline is None:
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
        if segment.columns:
            self.guard.active = self._token
            part = next(frame.pipeline, None)
            self.guard.active = None
            if part is not None:
                self._emit_part(segment, part)
                return
            self._stack.pop()
            if isinstance(frame, Advance):
                self._stack.append(Pass(segment, frame.watermark))
            return
        size = min(segment.size, segment.limit)
        began = _now()
        self.guard.active = self._token
        results, stamps, done = pull_timers(
            frame.pipeline, size, segment.stamp, began + TARGET_SECONDS, copies=segment.copies
        )
        self.guard.active = None
        adapt(segment, size, _now() - began, len(results) == size)
        if done:
            self._stack.pop()
            if isinstance(frame, Advance):
                self._stack.append(Pass(segment, frame.watermark))
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
                    self._stack.append(Pass(segment, run.watermark))
                elif run.values:
                    segment.measure(run.values)
                    self._emit(((segment, run.values, run.stamps),))
                return

    def _assign_columns(self, frame: ColumnFrame) -> None:
        """The same for columns."""
        segment = frame.segment
        operator = segment.watermarks
        assert operator is not None
        batch, stamps = frame.next_rows()
        began = _now()
        self.guard.active = self._token
        stamps, watermark = operator.take_columns(batch, stamps)
        self.guard.active = None
        adapt_columns(segment, frame.size, _now() - began)
        if frame.start >= len(frame.batch):
            self._stack.pop()
        if watermark is not None:
            self._stack.append(Pass(segment, watermark))
        self._emit(((segment, batch, stamps),))

    def _assign(self, frame: Frame) -> None:
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
        adapt(segment, size, _now() - began, len(values) == size)
        frame.left -= len(values)
        if frame.left <= 0:
            self._stack.pop()
        if watermark is not None:
            self._stack.append(Pass(segment, watermark))
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
            chunks = split(operator, segment, values, stamps)
        if stamps is not None and segment.timed is not None:
            chunks = [run for chunk in chunks for run in runs(chunk)]
        self._emit(chunks)

    def _emit(self, chunks: Sequence[Chunk]) -> None:
        if len(chunks) == 1:
            segment, values, stamps = chunks[0]
            if not isinstance(values, list) and values.num_rows > ROWS_AT_THE_DOOR and segment.needs_rows:
                self._stack.append(Pieces(segment, values, as_array(stamps), 0, inward=False))
                return
        pushed: list[tuple[Segment, Values, Timestamps]] = []
        for segment, values, stamps in chunks:
            given = self._for_readers(segment, values)
            self._write(segment, given, stamps)
            pushed += [(child, own, stamps) for child, own in zip(segment.children, given, strict=False)]
        for child, values, stamps in reversed(pushed):
            self._push(child, values, stamps, 0)

    @staticmethod
    def _for_readers(segment: Segment, values: Values) -> Iterator[Values]:
        """What each of its readers gets: none sees what another one changes."""
        shared = segment.reuses or segment.readers < 2 or not isinstance(values, list)
        copies = [] if shared else [own_copies(values) for _ in range(segment.readers - 1)]
        return chain(copies, repeat(values))

    def _write(self, segment: Segment, given: Iterator[Values], stamps: Timestamps) -> None:
        guard, token = self.guard, self._token
        for consumer, values in zip(segment.consumers, given, strict=False):
            guard.active = token
            if isinstance(values, list):
                consumer.write(values, to_list(stamps))
            else:
                consumer.write_columns(values, as_array(stamps))
            guard.active = None
            if not consumer.writable:
                self._full.append(consumer)
        for output, values in zip(segment.outputs, given, strict=False):
            self.records_out += len(values)
            guard.active = token
            if isinstance(values, list):
                routed = output.route(values, to_list(stamps))
            else:
                routed = output.route_columns(values, as_array(stamps))
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
                self._stack.append(Advance(child, watermark))

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
