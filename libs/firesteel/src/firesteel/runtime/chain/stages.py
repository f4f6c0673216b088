"""The stages of a chain: operators that run as one, and what is behind them.

A stage takes batches (``push``), watermarks (``advance``) and times of the clock (``fire``) in order, and works on them
in slices: each ``step`` gives what one slice gave, and to whom. Whoever steps delivers that before the next step; so of
many results a bounded number is under way, and generators of user code stay suspended where they are.

The size of slices follows the time that they take. Stages know no task, no channel and no thread: a test, or a
partition of a batch job, may drive them as well as ``firesteel.runtime.chain.chain`` does.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import Any, Final, TypeAlias

from firesteel.common.own_copies import COPIERS, as_given, own_copies
from firesteel.functions.output_tag import tags_exist
from firesteel.runtime.chain.partitioners import Output
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
LARGEST_SLICE: Final = 1024
SLICE_BYTES: Final = 256 * 1024
"""About so many bytes of results are pulled in a slice; one record that is larger passes alone."""
COLUMN_SECONDS: Final = 0.01
FIRST_COLUMNS: Final = 16384
SMALLEST_COLUMNS: Final = 256
LARGEST_COLUMNS: Final = 1 << 20
ROWS_AT_ONCE: Final = 4096
"""So many rows are made of columns at once: about two milliseconds' worth."""
_SAMPLED: Final = 16
"""Smaller chunks are not measured, as long as slices are not limited by bytes."""
_SLICES_AT_ONCE: Final = 8
_now = time.perf_counter


class Outlet:
    """Where results of a stage go, or the records of one of its side outputs.

    Attributes:
        consumers, outputs, children: its readers.
        reuses: all of them get the same objects.
        records: running total of what left here.
        typed: the output with a declared type whose records these are; None: no type was declared.
        watermark_origin: says what the watermarks that leave here for other tasks follow, see ``Watermark.origin``.
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
        """Whether a consumer or an output works on rows only."""
        readers: list[Consumer | Output] = [*self.consumers, *self.outputs]
        return not all(reader.takes_columns for reader in readers)

    def refuse_nulls(self, batch: Batch) -> None:
        """Where results leave the chain, or become columns, they are of the declared type.

        Raises:
            TypeMismatchError: one of them is None.
        """
        typed = self.typed
        if typed is None or not typed.gave_null or not isinstance(batch.values, list):
            return
        if self.consumers or self.outputs or any(isinstance(child, ColumnStage) for child in self.children):
            typed.refuse_nulls(batch.values)

    def for_readers(self, batch: Batch) -> Iterator[Batch]:
        """The batch for each of its readers, in order: none sees what another one changes."""
        others = len(self.consumers) + len(self.outputs) + len(self.children) - 1
        if others < 1:
            return iter((batch,))
        values = batch.values
        copied = isinstance(values, list) and not self.reuses
        return iter([*(batch.with_values(own_copies(values) if copied else values) for _ in range(others)), batch])


Emitted: TypeAlias = Sequence[tuple[Outlet, Batch | Watermark]]
"""What a slice gave, in order."""
_NOTHING: Final[Emitted] = ()
Slices: TypeAlias = Generator[Emitted, None, Emitted]
"""What goes in is worked off by a generator: it yields, and at its end returns, what each slice gave."""


class SliceSize:
    """How many records go into a slice, and how many results come out of it: fitted to the last slices.

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
        """Of records that go one by one."""
        return cls(1, 1, LARGEST_SLICE, TARGET_SECONDS)

    @classmethod
    def of_columns(cls) -> SliceSize:
        """Of rows of columns."""
        return cls(FIRST_COLUMNS, SMALLEST_COLUMNS, LARGEST_COLUMNS, COLUMN_SECONDS)

    @property
    def next(self) -> int:
        """For the next slice."""
        records, limit = self.records, self.limit
        if self.room < limit:
            limit = max(self._smallest, self.room)
        return records if records < limit else limit

    def fit(self, asked: int, took: float, *, full: bool = True) -> None:
        """A slice of so many took so many seconds; ``full``: there was more for it to do."""
        if took > 2 * self._seconds:
            self.records = max(self._smallest, int(asked * self._seconds / took))
        elif took < self._seconds / 2 and full and asked == self.records:
            self.records = min(asked * 2, self._largest)

    def measure(self, results: list[Any]) -> None:
        """Fit ``limit`` to the size of the records at hand."""
        if len(results) >= _SAMPLED or self.limit < self._largest:
            size = max(1, values_bytes(results))
            self.limit = min(self._largest, max(1, SLICE_BYTES * len(results) // size))


class ChainStage(ABC):
    """Operators that run as one. See the module.

    Attributes:
        operators: in order.
        outlet: where results go.
        sides: where the records of side outputs go, by tag; those of others go nowhere.
        stamp: of the record in flight.
        records_in: running total of what was put in.
        timed: its operator with timers, which is the last one.
        slices: how many records or rows go into a slice; None = it does not expand, or has no slices.
    """

    timed: TimedTransform | TimedColumns | None = None
    slices: SliceSize | None = None

    def __init__(self, operators: Sequence[Operator]) -> None:
        self.operators = operators
        self.outlet = Outlet()
        self.sides: dict[str, Outlet] = {}
        self.stamp = Stamp()
        self.records_in = 0
        self._work: deque[Slices] = deque()
        self._pipeline: Iterator[Any] | None = None
        """Results that are pulled now."""

    def side(self, tag: str) -> Outlet:
        """Where the records of a side output go."""
        if tag not in self.sides:
            self.sides[tag] = Outlet(reuses=self.outlet.reuses)
            self.sides[tag].typed = TypedOutput(self.operators[-1], tag)
        return self.sides[tag]

    @property
    def pending(self) -> bool:
        """Whether something that went in has not been worked off."""
        return bool(self._work)

    @property
    def waits(self) -> bool:
        """Whether a step would do nothing: what is pending waits for results that others make."""
        return False

    @property
    def takes_dictionaries(self) -> bool:
        """Whether columns of keys may come as dictionaries."""
        return False

    @property
    def records_at_once(self) -> int:
        """So many records that go in are worked off soon."""
        return LARGEST_COLUMNS

    @property
    def next_timer(self) -> int | None:
        """When the next processing-time timer is due (epoch ms)."""
        return None if self.timed is None else self.timed.heap_timers.processing.earliest

    # -- what goes in

    def push(self, batch: Batch, input_index: int = 0) -> None:
        """A batch for one of the inputs of the first operator."""
        self._work.append(self._process(batch, input_index))

    def advance(self, watermark: Watermark) -> None:
        """A watermark behind all that went in before."""
        self._work.append(self._advance(watermark))

    def fire(self, now: int) -> None:
        """Fire the processing-time timers that are due at this time (epoch ms); only when nothing is pending."""
        if self.timed is not None:
            self._work.append(self._pull_timers(self.timed.advance_processing_time(now)))

    # -- what comes out

    def step(self) -> Emitted:
        """One slice of what is pending."""
        try:
            return next(self._work[0])
        except StopIteration as end:
            self._work.popleft()
            emitted: Emitted = end.value
            return emitted

    @property
    def records_out(self) -> int:
        """Running total of its results, those of side outputs that somebody reads included."""
        return self.outlet.records + sum(side.records for side in self.sides.values())

    def drop(self) -> None:
        """Forget what is pending; suspended user generators are closed."""
        pipeline, self._pipeline = self._pipeline, None
        close = getattr(pipeline, "close", None)
        try:
            if close is not None:
                close()
        except BaseException:  # a generator that objects to its end has no say here
            pass
        self._work.clear()

    # -- inside

    @abstractmethod
    def _process(self, batch: Batch, input_index: int) -> Slices:
        """What a batch gives, slice by slice."""

    def _advance(self, watermark: Watermark) -> Slices:
        """What a watermark gives: results of timers, then itself."""
        self.stamp.watermark = max(self.stamp.watermark, watermark.timestamp)
        timed = self.timed
        if timed is not None and watermark.timestamp > timed.heap_timers.watermark:
            last = yield from self._pull_timers(timed.advance_watermark(watermark.timestamp))
            if last:
                yield last
        return self._to_all(watermark)

    def _pull_timers(self, pipeline: Iterator[Any]) -> Slices:
        """What timers give, slice by slice."""
        raise NotImplementedError(f"{type(self).__name__} has no operators with timers")  # our own bug

    def _to_all(self, watermark: Watermark) -> Emitted:
        if not self.sides:
            return ((self.outlet, watermark),)
        return [(outlet, watermark) for outlet in (self.outlet, *self.sides.values())]

    @staticmethod
    def _leave(outlet: Outlet, batch: Batch) -> Slices:
        """A batch for one outlet: of many columns rows are made some at a time."""
        if isinstance(batch.values, list) or len(batch) <= ROWS_AT_ONCE or not outlet.needs_rows:
            return ((outlet, batch),)
        for piece in batch.cut(ROWS_AT_ONCE):
            yield ((outlet, piece),)
        return _NOTHING


class ForwardStage(ChainStage):
    """No operators: a source that needs nothing more, or a sink at the head of a chain."""

    def __init__(self) -> None:
        super().__init__(())

    def _process(self, batch: Batch, input_index: int) -> Slices:
        return self._leave(self.outlet, batch)


class RowStage(ChainStage):
    """Operators that take records one by one, as a pipeline of generators.

    Only the last one may give more results than it takes records, have timers or side outputs.

    Args:
        copies: results that can be changed are copied as they leave: they wait for others, and whoever gave them may
            change them and give them again.

    Attributes:
        slices: how many records and results go into one.
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
    def records_at_once(self) -> int:
        """See ``ChainStage``: some slices of slow records, else as many as there are."""
        records = self.slices.records
        return LARGEST_COLUMNS if records >= LARGEST_SLICE else _SLICES_AT_ONCE * records

    def _process(self, batch: Batch, input_index: int) -> Slices:
        if isinstance(batch.values, list):
            return self._slices(batch, input_index)
        return self._rows_of(batch, input_index)

    def _rows_of(self, batch: Batch, input_index: int) -> Slices:
        """Columns become rows at the door, some at a time."""
        values = columns_of(batch)
        if all(operator.passes_columns(values) for operator in self.operators):
            return (yield from self._leave(self.outlet, batch))
        for piece in batch.cut(ROWS_AT_ONCE):
            rows = to_rows(piece)
            yield _NOTHING
            yield (yield from self._slices(rows, input_index))
        return _NOTHING

    def _slices(self, batch: Batch, input_index: int) -> Slices:
        slices, stamp, operators, count = self.slices, self.stamp, self.operators, len(batch)
        values, timestamps, kinds = batch.values, batch.timestamps, batch.kinds
        looks_ahead = operators[0].looks_ahead
        by_slices = self._by_slices and kinds is None
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
            taken = size = slices.next
            began = _now()
            if looks_ahead:
                operators[0].look_ahead(values[start : start + size], input_index)
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
                for operator in operators:
                    pipeline = operator.apply(pipeline, position)
                    position = 0
            self._pipeline = pipeline
            more = True
            while more:
                found = [self._pulled(pipeline, size, batch, start, each=each)]
                given = len(found[0])
                slices.fit(size, _now() - began, full=start + taken <= count or given == size)
                more = self._expands and given == size
                if not more:
                    self._pipeline = None
                    if start + taken >= count:
                        return self._routed(found.pop())
                yield self._routed(found.pop())  # nothing here holds on to what has left
                began = _now()
                size = slices.next
            start += taken
        return _NOTHING

    def _pulled(self, pipeline: Iterator[Any], size: int, batch: Batch, start: int, *, each: bool) -> Batch:
        """The next results, at most ``size`` if the stage expands, of the slice of a batch that begins at ``start``.

        Args:
            each: timestamp and kind of each result are those of the record in flight; else there are none, or they are
                those of the slice.
        """
        timestamps, kinds = batch.timestamps, batch.kinds
        if each:
            found = _collected(pipeline, size, self.stamp, copies=self._copies, kinds=kinds is not None)
            if timestamps is None and not self._sets_stamps:
                found.timestamps = None
            return found
        taken = islice(pipeline, size) if self._expands else pipeline
        results = _all_as_given(taken) if self._copies else list(taken)
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
            found, done = _of_timers(pipeline, size, self.stamp, began + TARGET_SECONDS, copies=self._copies)
            self.slices.fit(size, _now() - began, full=len(found) == size)
            yield self._routed(found)
        self._pipeline = None
        return _NOTHING

    def _routed(self, found: Batch) -> Emitted:
        """Results: those of side outputs apart, and those without timestamps apart from those with."""
        results = found.values
        if not results:
            return _NOTHING
        assert isinstance(results, list)
        self.slices.measure(results)
        last = self.operators[-1]
        if last.may_tag and not last.tagged and tags_exist():
            last.enable_tags()
        if last.tagged and any(value.__class__ is SideRecord or last.is_tagged(value) for value in results):
            emitted = self._split(last, results, found)
        else:
            emitted = [(self.outlet, found)]
        if self.timed is not None and found.timestamps is not None and None in found.timestamps:
            return [(outlet, run) for outlet, batch in emitted for run in _runs(batch)]
        return emitted

    def _split(self, last: Operator, results: list[Any], found: Batch) -> list[tuple[Outlet, Batch]]:
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
                emitted.append((outlet, Batch(values, _chosen(found.timestamps, chosen), _chosen(found.kinds, chosen))))
        return emitted


class ColumnStage(ChainStage):
    """Operators that take record batches; rows become columns at the door.

    Attributes:
        slices: how many rows go into one.
    """

    operators: Sequence[ColumnTransform]
    slices: SliceSize

    def __init__(self, operators: Sequence[ColumnTransform]) -> None:
        super().__init__(operators)
        self.slices = SliceSize.of_columns()
        last = operators[-1]
        self.timed = last if isinstance(last, TimedColumns) else None

    @property
    def takes_dictionaries(self) -> bool:
        """If its first operator does."""
        return self.operators[0].takes_dictionaries

    def _process(self, batch: Batch, input_index: int) -> Slices:
        for operator in self.operators:
            operator.refuse_changes(batch)
        batch = self.operators[0].input.from_rows(batch)
        start, count = 0, len(batch)
        while start < count:
            size = min(count - start, self.slices.next)
            part = batch if size == count else batch.slice(start, start + size)
            start += size
            pipeline: Iterator[Batch | SideBatch] = iter((part,))
            for operator in self.operators:
                pipeline = operator.apply_columns(pipeline)  # type: ignore[arg-type] # the last one only has sides
            self._pipeline = pipeline
            took = 0.0
            began = _now()
            for found in pipeline:
                took += _now() - began
                yield (yield from self._routed(found))
                began = _now()
            self._pipeline = None
            self.slices.fit(size, took + _now() - began)
        return _NOTHING

    def _pull_timers(self, pipeline: Iterator[Any]) -> Slices:
        self._pipeline = pipeline
        for found in pipeline:
            yield (yield from self._routed(found))
        self._pipeline = None
        return _NOTHING

    def _routed(self, found: Batch | SideBatch) -> Slices:
        outlet: Outlet | None = self.outlet
        if isinstance(found, SideBatch):
            outlet, found = self.sides.get(found.tag_id), found.batch
        if outlet is None or not len(found):
            return _NOTHING
        return (yield from self._leave(outlet, found))


class WatermarkStage(ChainStage):
    """An operator that assigns timestamps and makes watermarks; a slice of records ends where one is emitted.

    Attributes:
        operator: takes batches as they are.
    """

    def __init__(self, operator: WatermarksOperator) -> None:
        super().__init__((operator,))
        self.operator = operator
        self._rows, self._columns = SliceSize.of_rows(), SliceSize.of_columns()

    def look_at_clock(self) -> None:
        """Its interval has passed: emit the watermark if it has changed; only when nothing is pending."""
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
            asked = len(values)
            began = _now()
            stamps, watermark = self.operator.take(values, timestamps)
            self._rows.fit(size, _now() - began, full=asked == size)
            self._rows.measure(values)
            start += len(values)
            kinds = None if part.kinds is None else part.kinds[: len(values)]
            left = (self.outlet, Batch(values, stamps, kinds))
            yield (left,) if watermark is None else (left, *self._to_all(watermark))
        return _NOTHING

    def _column_slices(self, batch: Batch) -> Slices:
        start, count = 0, len(batch)
        while start < count:
            size = self._columns.next
            part = batch if size >= count else batch.slice(start, min(start + size, count))
            start += len(part)
            began = _now()
            stamps, watermark = self.operator.take_columns(columns_of(part), as_array(part.timestamps))
            self._columns.fit(min(size, len(part)), _now() - began)
            stamped = Batch(part.values, stamps, part.kinds)
            last = yield from self._leave(self.outlet, stamped)
            yield last if watermark is None else [*last, *self._to_all(watermark)]
        return _NOTHING


class AsyncStage(ChainStage):
    """An operator that takes records and gives their results later, without further input.

    What goes in waits until the operator takes more.

    Attributes:
        operator: its results leave whenever there are some, also when nothing is pending.
    """

    def __init__(self, operator: LaterResults) -> None:
        super().__init__((operator,))
        self.operator = operator
        self._waiting: deque[Batch | Watermark] = deque()

    @property
    def pending(self) -> bool:
        """Whether something waits that the operator has not taken."""
        return bool(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether the operator takes no more, and has no results yet."""
        return bool(self._waiting) and not self.operator.writable and not self.operator.ready

    @property
    def ready(self) -> bool:
        """Whether results may leave."""
        return self.operator.ready

    def push(self, batch: Batch, input_index: int = 0) -> None:
        """Rows are made of columns some at a time."""
        self._waiting.extend((batch,) if isinstance(batch.values, list) else batch.cut(ROWS_AT_ONCE))

    def advance(self, watermark: Watermark) -> None:
        """It leaves behind the results of the records before it."""
        self._waiting.append(watermark)

    def step(self) -> Emitted:
        """Hand the operator what waits, if it takes more; else the results that it has."""
        operator = self.operator
        if self._waiting and operator.writable:
            item = self._waiting.popleft()
            if isinstance(item, Watermark):
                self.stamp.watermark = max(self.stamp.watermark, item.timestamp)
                operator.put_watermark(item)
            else:
                operator.refuse_changes(item)
                operator.put(to_rows(item))
            return _NOTHING
        if not operator.ready:
            return _NOTHING
        found = operator.take()
        if isinstance(found, Watermark):
            return self._to_all(found)
        return ((self.outlet, found),) if len(found) else _NOTHING

    def drop(self) -> None:
        self._waiting.clear()

    def _process(self, batch: Batch, input_index: int) -> Slices:
        raise NotImplementedError  # ``step`` does it


def _stamped(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    """The values of records; ``stamp`` holds the timestamp of the value that was taken last."""
    for value, stamp.value in records:
        yield value


def _stamped_with_kinds(records: Iterator[Any], stamp: Stamp) -> Iterator[Any]:
    """The values of records; ``stamp`` holds timestamp and kind of the value that was taken last."""
    for value, stamp.value, stamp.kind in records:
        yield value


def _all_as_given(results: Iterable[Any]) -> list[Any]:
    """Results, each as it is when it is taken (``own_copies.as_given``)."""
    copiers = COPIERS
    return [result if (copier := copiers[result.__class__]) is None else copier(result) for result in results]


def _collected(pipeline: Iterator[Any], size: int, stamp: Stamp, *, copies: bool, kinds: bool) -> Batch:
    """The next ``size`` results of a pipeline, or all that are left, each with its timestamp (and kind)."""
    results: list[Any] = []
    stamps: list[Any] = []
    if not kinds:
        for result in islice(pipeline, size):
            results.append(as_given(result) if copies else result)
            stamps.append(stamp.value)
        return Batch(results, stamps)
    found: list[int] = []
    for result in islice(pipeline, size):
        results.append(as_given(result) if copies else result)
        stamps.append(stamp.value)
        found.append(stamp.kind or 0)
    return Batch(results, stamps, found)


def _of_timers(
    pipeline: Iterator[Any], size: int, stamp: Stamp, deadline: float, *, copies: bool
) -> tuple[Batch, bool]:
    """Results of timers, and whether there were no more; ends after a timer when the time is over."""
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


def _chosen(given: Timestamps | Kinds, positions: list[int]) -> list[int] | None:
    return None if given is None else [given[position] for position in positions]


def _runs(batch: Batch) -> Iterator[Batch]:
    """Cut a batch so that in each part either all records have timestamps or none has."""
    stamps = batch.timestamps
    assert stamps is not None
    start = 0
    for without, group in groupby(stamps, key=lambda stamp: stamp is None):
        part = batch.slice(start, start + len(list(group)))
        start += len(part)
        yield Batch(part.values, None, part.kinds) if without else part
