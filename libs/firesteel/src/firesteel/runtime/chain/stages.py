"""The stages of a chain: runs of operators that work on a batch together.

A stage takes batches (``push``), watermarks (``advance``) and times of the clock (``fire``) in order, and works on them
in slices. Each ``step`` works on one slice and returns its results with their destinations. The caller delivers these
before the next step. So only a bounded number of results is in memory, however many a record makes, and generators of
user code stay suspended between slices.

The size of slices follows the time that they take. Stages know no task, channel or thread: tests and partitions of
batch jobs drive them just as ``firesteel.runtime.chain.chain`` does.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import Any, Final, TypeAlias

from typing_extensions import override

from firesteel.common.own_copies import COPIERS, as_given, own_copies
from firesteel.functions.output_tag import tags_exist
from firesteel.runtime.chain.own_times import OwnTimes
from firesteel.runtime.chain.partitioners import Output
from firesteel.runtime.loop.work_time import processor_time, work_seconds
from firesteel.runtime.operator_base.base import Operator, Transform, TypedOutput
from firesteel.runtime.operator_base.columnar import ColumnTransform
from firesteel.runtime.operator_base.context import Stamp
from firesteel.runtime.operator_base.side_outputs import SideBatch, SideRecord
from firesteel.runtime.operator_base.timed import TIMER_DONE, TimedTransform
from firesteel.runtime.operators import Consumer, LaterResults, TimedColumns, WatermarksOperator
from firesteel.runtime.records.batch import Batch, Kinds, Timestamps, Watermark
from firesteel.runtime.records.columns import as_array, columns_of
from firesteel.runtime.records.rows import to_list, to_rows
from firesteel.runtime.records.sizes import values_bytes

TARGET_SECONDS: Final = 0.002
"""Time that a slice of records should take: between two slices the task loop serves timers and other tasks."""
LARGEST_SLICE: Final = 1024
"""Most records of a slice."""
SLICE_BYTES: Final = 256 * 1024
"""Bytes of results that a slice makes, about; a single record that is larger passes alone."""
COLUMN_SECONDS: Final = 0.01
"""Time that a slice of columns should take."""
FIRST_COLUMNS: Final = 16384
"""Rows of the first slice of columns, before any was measured."""
SMALLEST_COLUMNS: Final = 256
"""Least rows of a slice of columns."""
LARGEST_COLUMNS: Final = 1 << 20
"""Most rows of a slice of columns."""
ROWS_AT_ONCE: Final = 4096
"""Rows converted from columns per slice (about 2 ms of work)."""
_SAMPLED: Final = 16
"""Slices with fewer results are not measured in bytes, as long as the limit by bytes is not in force."""
_SLICES_AT_ONCE: Final = 8
"""Slices of slow records that are fed at a time to a chain in which a barrier may overtake."""
_now = time.perf_counter
_processor_time = processor_time


class Outlet:
    """The exit of a stage for its results, or for the records of one of its side outputs.

    Attributes:
        consumers, outputs, children: the readers of the records.
        reuses: whether all readers get the same objects (object reuse).
        records: running total of records that left here.
        typed: the output with a declared type whose records leave here; None if no type was declared.
        watermark_origin: tells which watermarks those that leave here for other tasks follow (``Watermark.origin``).
    """

    typed: TypedOutput | None = None
    watermark_origin: Callable[[], str] = staticmethod(lambda: "")

    def __init__(self, *, reuses: bool = False) -> None:
        self.consumers: list[Consumer] = []
        self.outputs: list[Output] = []
        self.children: list[ChainStage] = []
        self.reuses = reuses
        self.records = 0

    @property
    def needs_rows(self) -> bool:
        """Whether a consumer or an output takes no columns."""
        readers: list[Consumer | Output] = [*self.consumers, *self.outputs]
        return not all(reader.takes_columns for reader in readers)

    def refuse_nulls(self, batch: Batch) -> None:
        """Check results for None where they leave the chain or become columns; inside a chain None may pass.

        Raises:
            TypeMismatchError: a result is None although its type is declared.
        """
        typed = self.typed
        if typed is None or not typed.gave_null or not isinstance(batch.values, list):
            return
        if self.consumers or self.outputs or any(isinstance(child, ColumnStage) for child in self.children):
            typed.refuse_nulls(batch.values)

    def for_readers(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch for each reader: consumers, outputs, children. No reader sees the changes of another."""
        others = len(self.consumers) + len(self.outputs) + len(self.children) - 1
        if others < 1:
            return iter((batch,))
        values = batch.values
        copied = isinstance(values, list) and not self.reuses
        return iter([*(batch.with_values(own_copies(values) if copied else values) for _ in range(others)), batch])


Emitted: TypeAlias = Sequence[tuple[Outlet, Batch | Watermark]]
"""The results of a slice, in order, each with the outlet through which it leaves."""
_NOTHING: Final[Emitted] = ()
Slices: TypeAlias = Generator[Emitted, None, Emitted]
"""The work on a batch or watermark: a generator that yields the results of each slice, and returns those of the last.
"""


class SliceSize:
    """The number of records that go into a slice, and of results that it makes, adapted to the slices before.

    Attributes:
        records: as many as fit into the time.
        limit: as many as fit into ``SLICE_BYTES``.
        room: as many as the readers of the results take.
    """

    def __init__(self, first: int, smallest: int, largest: int, seconds: float) -> None:
        self.records, self.limit, self.room = first, largest, largest
        self._smallest, self._largest, self._seconds = smallest, largest, seconds

    @classmethod
    def of_rows(cls) -> SliceSize:
        """The size of slices of records."""
        return cls(1, 1, LARGEST_SLICE, TARGET_SECONDS)

    @classmethod
    def of_columns(cls) -> SliceSize:
        """The size of slices of columns, in rows."""
        return cls(FIRST_COLUMNS, SMALLEST_COLUMNS, LARGEST_COLUMNS, COLUMN_SECONDS)

    @property
    def next(self) -> int:
        """The size of the next slice: the smallest of the three limits."""
        records, limit = self.records, self.limit
        if self.room < limit:
            limit = max(self._smallest, self.room)
        return records if records < limit else limit

    def fit(self, size: int, seconds: float, *, full: bool = True) -> None:
        """Adapt ``records`` to a slice that was measured.

        The size stays as it is while slices take between half and twice the target time.

        Args:
            size: the size that the slice could have had.
            seconds: how long it took.
            full: whether it had that size; a smaller slice does not show that larger ones would be fast.
        """
        if seconds > 2 * self._seconds:
            self.records = max(self._smallest, int(size * self._seconds / seconds))
        elif seconds < self._seconds / 2 and full and size == self.records:
            self.records = min(size * 2, self._largest)

    def measure(self, results: list[Any]) -> None:
        """Adapt ``limit`` to the size in bytes of these results."""
        if len(results) >= _SAMPLED or self.limit < self._largest:
            size = max(1, values_bytes(results))
            self.limit = min(self._largest, max(1, SLICE_BYTES * len(results) // size))


class ChainStage(ABC):
    """A run of operators that work on a batch together.

    Attributes:
        operators: the operators in the order of the chain.
        outlet: exit of the results.
        sides: exits of the side outputs that somebody reads, by tag; records of other side outputs are dropped.
        stamp: timestamp and row kind of the record in flight, and the watermark.
        records_in: running total of records pushed.
        seconds: running total of the time of its steps.
        own_times: divides that time among the operators.
        timed: the operator with timers, which is always the last one.
        slices: size of slices; None for stages whose slices can't make many results.
    """

    timed: TimedTransform | TimedColumns | None = None
    slices: SliceSize | None = None

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators = operators
        self.outlet = Outlet()
        self.sides: dict[str, Outlet] = {}
        self.stamp = Stamp()
        self.records_in = 0
        self.seconds = 0.0
        self.own_times = OwnTimes(max(1, len(operators)))
        self._work: deque[Slices] = deque()
        self._pipeline: Iterator[Any] | None = None
        """The suspended generators of the slice under way."""

    def side(self, tag: str) -> Outlet:
        """The exit of a side output; created on the first call."""
        if tag not in self.sides:
            self.sides[tag] = Outlet(reuses=self.outlet.reuses)
            self.sides[tag].typed = TypedOutput(self.operators[-1], tag)
        return self.sides[tag]

    @property
    def pending(self) -> bool:
        """Whether there is work left on what was put in."""
        return bool(self._work)

    @property
    def waits(self) -> bool:
        """Whether a step would do nothing, because pending records wait for results that are made asynchronously."""
        return False

    @property
    def takes_dictionaries(self) -> bool:
        """Whether columns of keys may come as Arrow dictionaries."""
        return False

    @property
    def records_at_once(self) -> int:
        """Number of records that the stage works off in a short time, so that a barrier needs not wait for more."""
        return LARGEST_COLUMNS

    @property
    def next_timer(self) -> int | None:
        """When the next processing-time timer is due (epoch ms)."""
        return None if self.timed is None else self.timed.heap_timers.processing.earliest

    # -- input

    def push(self, batch: Batch, input_index: int = 0) -> None:
        """Put in a batch for one of the inputs of the first operator."""
        self._work.append(self._process(batch, input_index))

    def advance(self, watermark: Watermark) -> None:
        """Put in a watermark, behind everything that was put in before."""
        self._work.append(self._advance(watermark))

    def fire(self, now: int) -> None:
        """Fire the processing-time timers that are due at this time (epoch ms); only when nothing is pending."""
        if self.timed is not None:
            self._work.append(self._pull_timers(self.timed.advance_processing_time(now)))

    # -- output

    def step(self) -> Emitted:
        """Work on the next slice; returns its results."""
        try:
            return next(self._work[0])
        except StopIteration as end:
            self._work.popleft()
            emitted: Emitted = end.value
            return emitted

    @property
    def records_out(self) -> int:
        """Running total of results, including those of side outputs that somebody reads."""
        return self.outlet.records + sum(side.records for side in self.sides.values())

    def drop(self) -> None:
        """Drop all pending work, and close suspended generators of user code."""
        pipeline, self._pipeline = self._pipeline, None
        close = getattr(pipeline, "close", None)
        try:
            if close is not None:
                close()
        except BaseException:  # the task is ending already; what a generator raises at its close changes nothing
            pass
        self._work.clear()

    # -- inside

    @abstractmethod
    def _process(self, batch: Batch, input_index: int) -> Slices:
        """Work on a batch, slice by slice."""

    def _advance(self, watermark: Watermark) -> Slices:
        """Fire the timers that a watermark makes due, slice by slice, then let the watermark leave."""
        self.stamp.watermark = max(self.stamp.watermark, watermark.timestamp)
        timed = self.timed
        if timed is not None and watermark.timestamp > timed.heap_timers.watermark:
            last = yield from self._pull_timers(timed.advance_watermark(watermark.timestamp))
            if last:
                yield last
        return self._to_all(watermark)

    def _pull_timers(self, pipeline: Iterator[Any]) -> Slices:
        """Pull the results of timers, slice by slice."""
        raise NotImplementedError(f"{type(self).__name__} has no operators with timers")  # our own bug

    def _to_all(self, watermark: Watermark) -> Emitted:
        if not self.sides:
            return ((self.outlet, watermark),)
        return [(outlet, watermark) for outlet in (self.outlet, *self.sides.values())]

    @staticmethod
    def _leave(outlet: Outlet, batch: Batch) -> Slices:
        """Let a batch leave; large batches of columns leave in pieces if a reader has to convert them to rows."""
        if isinstance(batch.values, list) or len(batch) <= ROWS_AT_ONCE or not outlet.needs_rows:
            return ((outlet, batch),)
        for piece in batch.cut(ROWS_AT_ONCE):
            yield ((outlet, piece),)
        return _NOTHING


class ForwardStage(ChainStage):
    """A stage without operators: behind a source whose records need no work, or before a sink that heads a chain."""

    def __init__(self) -> None:
        super().__init__(())

    def _process(self, batch: Batch, input_index: int) -> Slices:
        return self._leave(self.outlet, batch)


class RowStage(ChainStage):
    """Operators that take single records, as a pipeline of generators: each pulls records from the one before it.

    Only the last operator may make several results of a record, have timers, or have side outputs. A slice takes some
    records from the batch; if these make more results than fit into the slice, the generators stay suspended, and the
    next slices pull the others.

    Args:
        copies: whether mutable results are copied as they leave. They are collected into a batch, and user code may
            meanwhile change an object that it has emitted and emit it again.
    """

    operators: Sequence[Transform]
    slices: SliceSize

    def __init__(self, operators: Sequence[Transform], *, copies: bool) -> None:
        super().__init__(operators)
        self.slices = SliceSize.of_rows()
        last = operators[-1]
        self.timed = last if isinstance(last, TimedTransform) else None
        self._copies, self._expands = copies, last.expands
        self._sets_stamps = self.timed is not None and self.timed.sets_stamps
        self._one_to_one = all(operator.one_to_one for operator in operators)
        self._by_slices = last.takes_slices and len(operators) == 1

    @property
    @override
    def records_at_once(self) -> int:
        # Records of which a full slice takes no more than its time are fast enough for any number.
        records = self.slices.records
        return LARGEST_COLUMNS if records >= LARGEST_SLICE else _SLICES_AT_ONCE * records

    def _process(self, batch: Batch, input_index: int) -> Slices:
        if isinstance(batch.values, list):
            return self._slices(batch, input_index)
        return self._rows_of(batch, input_index)

    def _rows_of(self, batch: Batch, input_index: int) -> Slices:
        """Convert columns to rows in pieces, and work on these; columns pass if no operator would change them."""
        values = columns_of(batch)
        if all(operator.passes_columns(values) for operator in self.operators):
            return (yield from self._leave(self.outlet, batch))
        for piece in batch.cut(ROWS_AT_ONCE):
            rows = to_rows(piece)
            yield _NOTHING
            yield (yield from self._slices(rows, input_index))
        return _NOTHING

    def _slices(self, batch: Batch, input_index: int) -> Slices:
        """Work on a batch of rows.

        The outer loop takes records of the batch, the inner one pulls their results. An operator learns the timestamp
        and row kind of a record from ``stamp``, which is set as the record is pulled.
        """
        slices, stamp, operators, count = self.slices, self.stamp, self.operators, len(batch)
        values, timestamps, kinds = batch.values, batch.timestamps, batch.kinds
        looks_ahead = operators[0].looks_ahead
        by_slices = self._by_slices and kinds is None
        # If each record makes one result, timestamps and kinds of a slice are those of its results. Only otherwise do
        # they have to be carried along record by record, which costs time.
        each = not self._one_to_one and (timestamps is not None or kinds is not None or self._sets_stamps)
        records: Iterator[Any] = iter(values)
        stamped = _stamped
        if each and kinds is None:
            records = zip(values, timestamps or repeat(None), strict=False)
        elif each:
            records = zip(values, timestamps or repeat(None), kinds or (), strict=False)
            stamped = _stamped_with_kinds
        if timestamps is None:
            stamp.value = None
        if kinds is not None:
            for operator in operators:
                operator.refuse_changes(batch)
        start = 0
        while start < count:
            record_count = size = slices.next
            began = _now()
            if looks_ahead:
                operators[0].look_ahead(values[start : start + size], input_index)
            own_times = self.own_times if self.own_times.is_due(began) else None
            if own_times is not None and looks_ahead:
                own_times.add_first(_now() - began)
            pipeline: Iterator[Any]
            if by_slices:
                assert timestamps is None or isinstance(timestamps, list)  # as the values are
                stamps = None if timestamps is None else timestamps[start : start + size]
                pipeline = operators[0].apply_slice(values[start : start + size], stamps, input_index)
            else:
                pipeline = islice(records, size)
                if each:
                    pipeline = stamped(pipeline, stamp)
                position = input_index
                for number, operator in enumerate(operators):
                    if own_times is not None and number:
                        pipeline = own_times.timed(pipeline, number - 1)
                    pipeline = operator.apply(pipeline, position)
                    position = 0
            self._pipeline = pipeline
            more = True
            while more:
                # In a list, from which it is popped: this suspended frame must not keep results alive that have left.
                results = [self._pulled(pipeline, size, batch, start, each=each)]
                result_count = len(results[0])
                seconds = _now() - began
                slices.fit(size, seconds, full=start + record_count <= count or result_count == size)
                if own_times is not None:
                    own_times.add(seconds, record_count)
                more = self._expands and result_count == size
                if not more:
                    self._pipeline = None
                    if start + record_count >= count:
                        return self._routed(results.pop())
                yield self._routed(results.pop())
                began = _now()
                size = slices.next
            start += record_count
        return _NOTHING

    def _pulled(self, pipeline: Iterator[Any], size: int, batch: Batch, start: int, *, each: bool) -> Batch:
        """Pull the next results, at most ``size`` if the stage expands, of the slice that begins at ``start``.

        Args:
            each: whether each result gets timestamp and kind of the record in flight; if not, results have none, or
                those of the slice.
        """
        timestamps, kinds = batch.timestamps, batch.kinds
        if each:
            collected = _collected(pipeline, size, self.stamp, copies=self._copies, kinds=kinds is not None)
            if timestamps is None and not self._sets_stamps:
                collected.timestamps = None
            return collected
        pulled = islice(pipeline, size) if self._expands else pipeline
        results = _all_as_given(pulled) if self._copies else list(pulled)
        if start or size < len(batch):
            stop = start + size
            timestamps = None if timestamps is None else timestamps[start:stop]
            kinds = None if kinds is None else kinds[start:stop]
        return Batch(results, timestamps, kinds)

    def _pull_timers(self, pipeline: Iterator[Any]) -> Slices:
        self._pipeline = pipeline
        self.stamp.kind = None
        done = False
        while not done:
            size = self.slices.next
            began = _now()
            results, done = _results_of_timers(pipeline, size, self.stamp, began + TARGET_SECONDS, copies=self._copies)
            self.slices.fit(size, _now() - began, full=len(results) == size)
            yield self._routed(results)
        self._pipeline = None
        return _NOTHING

    def _routed(self, batch: Batch) -> Emitted:
        """Assign results to outlets: those of side outputs to theirs, and in runs that all have timestamps or none."""
        results = batch.values
        if not results:
            return _NOTHING
        assert isinstance(results, list)
        self.slices.measure(results)
        last = self.operators[-1]
        if last.may_tag and not last.tagged and tags_exist():
            # The program has created its first OutputTag since: from now on each result has to be looked at.
            last.enable_tags()
        if last.tagged and any(value.__class__ is SideRecord or last.is_tagged(value) for value in results):
            emitted = self._split(last, results, batch)
        else:
            emitted = [(self.outlet, batch)]
        if self.timed is not None and batch.timestamps is not None and None in batch.timestamps:
            return [(outlet, run) for outlet, part in emitted for run in _runs(part)]
        return emitted

    def _split(self, last: Operator, results: list[Any], batch: Batch) -> list[tuple[Outlet, Batch]]:
        """Split results by main output and side outputs; those of side outputs that nobody reads are dropped."""
        positions: dict[str | None, list[int]] = {None: []}
        for position, value in enumerate(results):
            if last.is_tagged(value):  # it was yielded before the operator knew that there are tags
                results[position] = value = last.side_record(value)
            tag = value.tag_id if value.__class__ is SideRecord else None
            positions.setdefault(tag, []).append(position)
        emitted: list[tuple[Outlet, Batch]] = []
        for tag, chosen in positions.items():
            outlet = self.outlet if tag is None else self.sides.get(tag)
            if outlet is not None and chosen:
                values = [results[position] for position in chosen]
                if tag is not None:
                    values = [record.value for record in values]
                emitted.append((outlet, Batch(values, _chosen(batch.timestamps, chosen), _chosen(batch.kinds, chosen))))
        return emitted


class ColumnStage(ChainStage):
    """Operators that take record batches; batches of rows are converted to columns first."""

    operators: Sequence[ColumnTransform]
    slices: SliceSize

    def __init__(self, operators: Sequence[ColumnTransform]) -> None:
        super().__init__(operators)
        self.slices = SliceSize.of_columns()
        # Reading the processor's time is a system call, so it is read only behind a slice that was slow by the clock.
        self._reads_processor_time = True
        last = operators[-1]
        self.timed = last if isinstance(last, TimedColumns) else None

    @property
    @override
    def takes_dictionaries(self) -> bool:
        return self.operators[0].takes_dictionaries

    def _process(self, batch: Batch, input_index: int) -> Slices:
        for operator in self.operators:
            operator.refuse_changes(batch)
        head = self.operators[0]
        batch = head.columns_of_input(input_index).from_rows(batch)
        start, count = 0, len(batch)
        while start < count:
            size = min(count - start, self.slices.next)
            part = batch if size == count else batch.slice(start, start + size)
            start += size
            pipeline: Iterator[Batch | SideBatch] = head.apply_input(iter((part,)), input_index)
            own_times = self.own_times if self.own_times.is_due(_now()) else None
            for number, operator in enumerate(self.operators[1:]):
                if own_times is not None:
                    pipeline = own_times.timed(pipeline, number)
                pipeline = operator.apply_columns(pipeline)  # type: ignore[arg-type] # the last one only has sides
            self._pipeline = pipeline
            reads = self._reads_processor_time
            # Of the operators alone, without the time in which this generator is suspended.
            seconds = processor_seconds = 0.0
            began, processor_began = _now(), _processor_time() if reads else 0.0
            for result in pipeline:
                seconds += _now() - began
                processor_seconds += _processor_time() - processor_began if reads else 0.0
                yield (yield from self._routed(result))
                began, processor_began = _now(), _processor_time() if reads else 0.0
            self._pipeline = None
            seconds += _now() - began
            processor_seconds += _processor_time() - processor_began if reads else 0.0
            self._reads_processor_time = seconds > COLUMN_SECONDS
            if reads or not self._reads_processor_time:
                self.slices.fit(size, work_seconds(seconds, processor_seconds) if reads else seconds)
            if own_times is not None:
                own_times.add(seconds, 1)
        return _NOTHING

    def _pull_timers(self, pipeline: Iterator[Any]) -> Slices:
        self._pipeline = pipeline
        for result in pipeline:
            yield (yield from self._routed(result))
        self._pipeline = None
        return _NOTHING

    def _routed(self, result: Batch | SideBatch) -> Slices:
        """Let a result leave through the outlet to which it belongs."""
        outlet: Outlet | None = self.outlet
        if isinstance(result, SideBatch):
            outlet, result = self.sides.get(result.tag_id), result.batch
        if outlet is None or not len(result):
            return _NOTHING
        return (yield from self._leave(outlet, result))


class WatermarkStage(ChainStage):
    """The stage of an operator that assigns timestamps and generates watermarks.

    A slice of records ends where a watermark is emitted, so that the watermark leaves at its place among the records.
    """

    def __init__(self, operator: WatermarksOperator) -> None:
        super().__init__((operator,))
        self.operator = operator
        self._rows, self._columns = SliceSize.of_rows(), SliceSize.of_columns()

    def look_at_clock(self) -> None:
        """Emit the watermark if it has changed, as its interval has passed; called only when nothing is pending."""
        self._work.append(self._look_at_clock())

    def _look_at_clock(self) -> Slices:
        watermark = self.operator.periodic()
        return _NOTHING if watermark is None else self._to_all(watermark)
        yield

    def _advance(self, watermark: Watermark) -> Slices:
        self.stamp.watermark = max(self.stamp.watermark, watermark.timestamp)
        return self._to_all(watermark) if self.operator.passes(watermark) else _NOTHING
        yield

    def _process(self, batch: Batch, input_index: int) -> Slices:
        if not isinstance(batch.values, list) and self.operator.takes_columns:
            return self._column_slices(batch)
        return self._slices(batch)

    def _slices(self, batch: Batch) -> Slices:
        for piece in batch.cut(ROWS_AT_ONCE) if not isinstance(batch.values, list) else (batch,):
            yield (yield from self._row_slices(to_rows(piece)))
        return _NOTHING

    def _row_slices(self, batch: Batch) -> Slices:
        start, count = 0, len(batch)
        while start < count:
            size = self._rows.next
            part = batch.slice(start, start + size)
            values, timestamps = part.values, to_list(part.timestamps)
            assert isinstance(values, list)
            full = len(values) == size
            began = _now()
            stamps, watermark = self.operator.take(values, timestamps)  # cuts ``values`` where it emits a watermark
            self._rows.fit(size, _now() - began, full=full)
            self._rows.measure(values)
            start += len(values)
            kinds = None if part.kinds is None else part.kinds[: len(values)]
            records = (self.outlet, Batch(values, stamps, kinds))
            yield (records,) if watermark is None else (records, *self._to_all(watermark))
        return _NOTHING

    def _column_slices(self, batch: Batch) -> Slices:
        start, count = 0, len(batch)
        while start < count:
            size = self._columns.next
            part = batch if size >= count else batch.slice(start, min(start + size, count))
            start += len(part)
            began, processor_began = _now(), _processor_time()
            stamps, watermark = self.operator.take_columns(columns_of(part), as_array(part.timestamps))
            seconds = work_seconds(_now() - began, _processor_time() - processor_began)
            self._columns.fit(min(size, len(part)), seconds)
            stamped = Batch(part.values, stamps, part.kinds)
            last = yield from self._leave(self.outlet, stamped)
            yield last if watermark is None else [*last, *self._to_all(watermark)]
        return _NOTHING


class AsyncStage(ChainStage):
    """The stage of an operator that emits the results of records later, without further input.

    Records wait here until the operator takes more. Results leave whenever there are some, also when nothing is
    pending.
    """

    def __init__(self, operator: LaterResults) -> None:
        super().__init__((operator,))
        self.operator = operator
        self._waiting: deque[Batch | Watermark] = deque()

    @property
    @override
    def pending(self) -> bool:
        return bool(self._waiting)

    @property
    @override
    def waits(self) -> bool:
        return bool(self._waiting) and not self.operator.writable and not self.operator.ready

    @property
    def ready(self) -> bool:
        """Whether the operator has results that may leave."""
        return self.operator.ready

    @override
    def push(self, batch: Batch, input_index: int = 0) -> None:
        self._waiting.extend((batch,) if isinstance(batch.values, list) else batch.cut(ROWS_AT_ONCE))

    @override
    def advance(self, watermark: Watermark) -> None:
        self._waiting.append(watermark)

    def step(self) -> Emitted:
        """Hand the operator a batch that waits, if it takes more; otherwise return results that it has."""
        operator = self.operator
        if self._waiting and operator.writable:
            item = self._waiting.popleft()
            if isinstance(item, Watermark):
                self.stamp.watermark = max(self.stamp.watermark, item.timestamp)
                operator.put_watermark(item)
            else:
                operator.refuse_changes(item)
                operator.put(item if operator.takes_columns else to_rows(item))
            return _NOTHING
        if not operator.ready:
            return _NOTHING
        results = operator.take()
        if isinstance(results, Watermark):
            return self._to_all(results)
        return ((self.outlet, results),) if len(results) else _NOTHING

    def drop(self) -> None:
        self._waiting.clear()

    def _process(self, batch: Batch, input_index: int) -> Slices:
        raise NotImplementedError  # ``push`` and ``step`` do without


def _stamped(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    """Yield the values of records; ``stamp`` holds the timestamp of the last value."""
    for value, stamp.value in records:
        yield value


def _stamped_with_kinds(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    """Yield the values of records; ``stamp`` holds timestamp and row kind of the last value."""
    for value, stamp.value, stamp.kind in records:
        yield value


def _all_as_given(results: Iterable[Any]) -> list[Any]:
    """Collect results, each as it is at the moment when it is pulled (``own_copies.as_given``)."""
    copiers = COPIERS
    return [result if (copier := copiers[result.__class__]) is None else copier(result) for result in results]


def _collected(pipeline: Iterator[Any], size: int, stamp: Stamp, *, copies: bool, kinds: bool) -> Batch:
    """Collect the next ``size`` results of a pipeline, or all that remain, each with its timestamp (and row kind)."""
    results: list[Any] = []
    stamps: list[Any] = []
    if not kinds:
        for result in islice(pipeline, size):
            results.append(as_given(result) if copies else result)
            stamps.append(stamp.value)
        return Batch(results, stamps)
    result_kinds: list[int] = []
    for result in islice(pipeline, size):
        results.append(as_given(result) if copies else result)
        stamps.append(stamp.value)
        result_kinds.append(stamp.kind or 0)
    return Batch(results, stamps, result_kinds)


def _results_of_timers(
    pipeline: Iterator[Any], size: int, stamp: Stamp, deadline: float, *, copies: bool
) -> tuple[Batch, bool]:
    """Collect results of timers; returns them, and whether these were the last.

    The slice ends after ``size`` results, or after the first timer that is done behind the deadline.
    """
    results: list[Any] = []
    stamps: list[Any] = []
    for result in pipeline:
        if result is TIMER_DONE:
            if _now() >= deadline:
                return Batch(results, stamps), False
            continue
        results.append(as_given(result) if copies else result)
        stamps.append(stamp.value)
        if len(results) >= size:
            return Batch(results, stamps), False
    return Batch(results, stamps), True


def _chosen(values: Timestamps | Kinds, positions: list[int]) -> list[int] | None:
    return None if values is None else [values[position] for position in positions]


def _runs(batch: Batch) -> Iterator[Batch]:
    """Cut a batch into runs of which either all records have timestamps or none has."""
    stamps = batch.timestamps
    assert stamps is not None
    start = 0
    for without, group in groupby(stamps, key=lambda stamp: stamp is None):
        part = batch.slice(start, start + len(list(group)))
        start += len(part)
        yield Batch(part.values, None, part.kinds) if without else part
