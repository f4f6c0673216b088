"""The input of a source task: it polls a reader, requests splits, and makes batches with timestamps and watermarks.

Everything runs on the task's loop; only a reader written for asyncio has a thread of its own. The number of records of
a poll adapts to three measurements: the time of the poll and the bytes that it returned (``_Limits``), and the time
that the chain took for the last batch (``_Pace``).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from typing_extensions import override

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.expressions.schema import uncolumnar
from firesteel.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from firesteel.functions.coroutines import AWAITED, refuse_coroutines
from firesteel.functions.functions import RuntimeContext
from firesteel.functions.source import (
    AsyncSourceReader,
    End,
    NeedSplits,
    Plain,
    ReaderBase,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.loop.loop import Handle, TaskLoop
from firesteel.runtime.loop.work_time import processor_time, work_seconds
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.sites import UserCode
from firesteel.runtime.operator_base.split_codec import SplitCodec
from firesteel.runtime.records.batch import END_OF_INPUT, MAX_WATERMARK, Batch, InBand, InputBatch, Timestamps, Values
from firesteel.runtime.records.columns import StreamColumns, as_array
from firesteel.runtime.records.rows import to_list, to_records
from firesteel.runtime.records.sizes import values_bytes
from firesteel.runtime.sources.async_polls import AsyncPolls, asks_in_vain
from firesteel.runtime.sources.source_time import SourceTime
from firesteel.runtime.task.parts import TaskInput

TARGET_SECONDS: Final = 0.002
"""Time that a poll for records should take."""
SMALLEST_POLL: Final = 64
"""Records of the first poll, before any was measured."""
BATCH_BYTES: Final = 1024 * 1024
"""Bytes that a poll should return at most; a single record that is larger passes alone."""
COLUMN_SECONDS: Final = 0.02
"""Processor time that a poll for columns should take. To make a batch of thirty columns costs 3 ms, and each operator
with state behind it 2 ms, whatever its size: in batches of 20 ms that is little. A source whose rows come slowly gives
small ones anyway."""
SMALLEST_COLUMNS: Final = 1024
"""Rows to which slow polls reduce batches of columns."""
COLUMN_BYTES: Final = 8 * 1024 * 1024
"""Bytes of columns that a poll should return at most."""
CHAIN_SECONDS: Final = 0.1
"""Time that the chain behind a source should take for one batch, because a barrier waits behind it."""
_SAMPLED: Final = 16
"""Polls with fewer records are not measured in bytes."""
SHOWN_SPLITS: Final = 20
"""Number of splits whose watermarks are shown as metrics."""
ASK_AGAIN_SECONDS: Final = 0.5
"""Pause before splits are requested again, after an answer without splits that did not say that no more come."""
SHORTEST_WAIT: Final = 0.00025
"""Shortest wait of a reader, in seconds: a paced source emits several records at a time rather than wake up for each of
ten thousand in a second."""
_now = time.perf_counter


class _Limits(NamedTuple):
    """Bounds on what one poll of a reader may return: at most this, and ``least`` records however long they take."""

    records: int
    seconds: float
    bytes: int
    least: int = 1

    def next_count(self, count: int, values: Values, took: float) -> int:
        """How many records to poll for next, after a poll for ``count`` returned these in ``took`` seconds."""
        read = len(values)
        if took > 2 * self.seconds:
            count = max(self.least, int(count * self.seconds / took))
        elif took < self.seconds / 2:
            count = count * 2
        if read >= _SAMPLED or count < _SAMPLED:
            count = min(count, self.bytes * read // max(1, values_bytes(values)))
        return max(1, min(count, self.records))


class _Pace:
    """How many records the chain works off in ``CHAIN_SECONDS``, measured with the last batches; one at first.

    Args:
        limit: most records of a batch.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self.most = limit, 1
        self._batch: tuple[int, float, float | None] | None = None
        """Of the batch in the chain: its records, when it got there, and for columns the processor's time then."""

    def batch_given(self, values: Values, now: float) -> None:
        """Note that the chain begins to work on these records."""
        processor = None if isinstance(values, list) else processor_time()
        self._batch = (len(values), now, processor) if len(values) else None

    def batch_done(self, now: float) -> None:
        """Adapt to the time that the chain took for the last batch, as it wants the next one."""
        if self._batch is None:
            return
        (records, at, processor_at), self._batch = self._batch, None
        seconds = now - at
        if processor_at is not None:
            seconds = work_seconds(seconds, processor_time() - processor_at)
        if seconds > CHAIN_SECONDS:
            self.most = max(1, min(self.most, int(records * CHAIN_SECONDS / seconds)))
        elif seconds < CHAIN_SECONDS / 2:
            self.most = min(self._limit, 2 * self.most)


class TaskReaderContext(ReaderContext):
    """The context of a reader."""

    def __init__(
        self,
        info: TaskInfo,
        clock: Clock,
        wake_up: Callable[[], None],
        runtime_context: RuntimeContext | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._info, self._clock, self._wake_up, self._runtime_context = info, clock, wake_up, runtime_context
        self._settings = Settings() if settings is None else settings

    @property
    @override
    def settings(self) -> Settings:
        return self._settings

    @property
    @override
    def subtask_index(self) -> int:
        return self._info.subtask

    @property
    @override
    def parallelism(self) -> int:
        return self._info.parallelism

    @override
    def monotonic(self) -> float:
        return self._clock.monotonic()

    @override
    def wake_up(self) -> None:
        self._wake_up()

    @override
    def runtime_context(self) -> RuntimeContext | None:
        return self._runtime_context


class _ReaderCheckpoints(CheckpointedFunction, CheckpointListener):
    """Tells a reader which positions are in a checkpoint, and when that is complete."""

    def __init__(self, source_input: SourceInput) -> None:
        self._input = source_input

    @override
    def initialize_state(self, context: FunctionInitializationContext) -> None: ...

    @override
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        number, positions = context.get_checkpoint_id(), dict(self._input.positions)
        reader = self._input.reader
        self._input.tell_reader(lambda: reader.positions_in_checkpoint(number, positions))

    @override
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        reader = self._input.reader
        self._input.tell_reader(lambda: reader.notify_checkpoint_complete(checkpoint_id))


class SourceInput(UserCode, TaskInput):
    """The input of a source task.

    The constructor creates the reader; ``run_on`` must be called before ``open``.

    Args:
        name: name of the source operator.
        source: creates the reader.
        info: description of the subtask.
        clock: clock of the reader.
        token: cancel token of the task.
        request_splits: requests splits from the JobMaster, through the control channel.
        on_readable: called on the loop when ``poll`` may return something again.
        max_records: most records of a batch.
        time: assigns timestamps and watermarks; None = the source has none.
        watermark_interval: seconds between periodic watermarks; 0 = never.
        report_watermark: tells the JobMaster, for watermark alignment, the group and the watermark of the source.
        runtime_context: context for the reader's user code and metrics.
        operator: operator of the source, whose restored state has the splits to begin with.
        finished: whether the source had ended in the checkpoint from which the job goes on.
        max_columnar_records: most rows of a batch of columns; None = ``max_records``.
        settings: configuration of the job.

    Attributes:
        positions: split id -> position behind the last record that the reader has returned; unfinished splits only.
            A batch may enter the chain in several pieces, so positions are valid only where ``at_position`` holds.
        reader: the reader.
        seconds: running total of the time in which the reader has read; not known of readers that may wait in ``poll``.
    """

    begins_barriers = True
    bytes_in = 0
    seconds = 0.0

    def __init__(
        self,
        name: str,
        source: Source[Any],
        info: TaskInfo,
        clock: Clock,
        token: CancelToken,
        request_splits: Callable[[], None],
        on_readable: Callable[[], None],
        max_records: int,
        time: SourceTime | None = None,
        watermark_interval: float = 0.0,
        report_watermark: Callable[[str, int], None] = lambda group, watermark: None,
        runtime_context: RuntimeContext | None = None,
        operator: Operator | None = None,
        finished: bool = False,
        max_columnar_records: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.name = name
        self._operator, self._finished = operator, finished
        self._codec = SplitCodec(name, source)
        self._asks_again = type(source).create_enumerator is Source.create_enumerator
        self._splits: dict[str, Split] = {}
        self._serial = 0
        self._checkpoint_requested = False  # whether the reader was asked if a checkpoint may be taken
        self.time = time
        self._interval = watermark_interval
        self._interval_timer: Handle | None = None
        self._alignment_timer: Handle | None = None
        self._report_watermark = report_watermark
        self._interval_over = False
        self._pieces: deque[InputBatch | InBand] = deque()
        self.positions: dict[str, Plain] = {}
        self._token = token
        self._loop: TaskLoop | None = None
        self._guard = InterruptGuard()
        self._request_splits, self._on_readable = request_splits, on_readable
        self._max = max_records
        self._limits = _Limits(max_records, TARGET_SECONDS, BATCH_BYTES)
        if max_columnar_records is None or (time is not None and time.needs_rows):
            max_columnar_records = max_records
        self._columnar_limits = _Limits(max_columnar_records, COLUMN_SECONDS, COLUMN_BYTES, SMALLEST_COLUMNS)
        self._count = min(SMALLEST_POLL, max_records)
        self._pace = _Pace(max(max_records, max_columnar_records))
        self._source_makes_columns = source.makes_columns
        self._type = source.produced_type()
        self._columns = None if self._type is None or uncolumnar(self._type) else StreamColumns(self._type)
        self._ready = True
        self._request_pending = False
        self._no_more = False
        self._ended = False
        self._closed = False
        self._timer: Handle | None = None
        context = TaskReaderContext(info, clock, lambda: self._post(self._wake), runtime_context, settings)
        self.reader: SourceReader[Any] | AsyncSourceReader[Any] = source.create_reader(context)
        refuse_coroutines(
            f"source {name!r}", self.reader, AWAITED if isinstance(self.reader, AsyncSourceReader) else ()
        )
        self._async: AsyncPolls | None = None

    @property
    def blocking(self) -> bool:
        """Whether the reader may wait for long in ``poll``."""
        return bool(getattr(self.reader, "blocking", False))

    def run_on(self, loop: TaskLoop, guard: InterruptGuard) -> None:
        """Set the loop, and the guard of its thread, on which all other methods are called; before ``open``."""
        self._loop, self._guard = loop, guard

    def _post(self, callback: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(callback)

    def open(self) -> None:
        """Open the reader, and hand it the restored splits."""
        function = self.reader.checkpointed_function() if isinstance(self.reader, SourceReader) else None
        if function is not None and self._operator is not None:
            self._operator.add_function(function)
        overrides_notify = type(self.reader).notify_checkpoint_complete is not ReaderBase.notify_checkpoint_complete
        if overrides_notify and self._operator is not None:
            self._operator.add_function(_ReaderCheckpoints(self))
        if isinstance(self.reader, AsyncSourceReader):
            self._async = self._polls(self.reader)
            self._async.start()
        else:
            self.reader.open()
        restored = None if self._operator is None else self._operator.restored
        if restored is not None and restored.splits:
            self._take_splits([Split.from_plain(split) for split in restored.splits], no_more=False)
        self._arm_interval()
        self._arm_alignment()

    def _polls(self, reader: AsyncSourceReader[Any]) -> AsyncPolls:
        most = self._columnar_limits.records if self._source_makes_columns else self._max
        return AsyncPolls(reader, most, lambda: self._post(self._available), self.name)

    def tell_reader(self, call: Callable[[], None]) -> None:
        """Call a method of the reader in the thread that belongs to it."""
        if self._closed or self._ended:
            return
        if self._async is not None:
            self._async.call(call)
        else:
            call()

    @property
    def at_position(self) -> bool:
        """Whether all records of the reader's last batch have entered the chain, and the reader allows a checkpoint."""
        if self._pieces:
            return False
        if not isinstance(self.reader, SourceReader) or self._ended or self._closed:
            return True
        self._checkpoint_requested = True
        return self.reader.ready_for_checkpoint()

    def position(self) -> SourcePosition:
        """The unfinished splits with their positions; valid where ``at_position`` holds.

        Raises:
            ProgramError: the position of a split is not plain data.
        """
        for split_id in self._splits:
            self._codec.check_position(split_id, self.positions[split_id])
        splits = (split.at(self.positions[split.id]).to_plain() for split in self._splits.values())
        return SourcePosition("" if self._operator is None else self._operator.spec.id, tuple(splits), self._serial)

    @override
    def position_taken(self) -> None:
        if self._checkpoint_requested:
            self._checkpoint_requested = False
            if isinstance(self.reader, SourceReader):
                self.reader.checkpoint_taken()

    @override
    def poll(self) -> InputBatch | InBand | None:
        if self._pieces:
            return self._pieces.popleft()
        if self._finished and not self._ended:
            self._ended = True
            return END_OF_INPUT
        if self._interval_over:
            self._interval_over = False
            watermark = self._periodic()
            if watermark is not None:
                return watermark
        while self._ready and not self._ended:
            answer = self._poll_reader()
            if isinstance(answer, SourceBatch):
                if answer.split_finished:
                    self.positions.pop(answer.split_id, None)
                    self._splits.pop(answer.split_id, None)
                else:
                    self.positions[answer.split_id] = answer.position
                if self.time is not None:
                    self._take(self.time, answer, self._values(answer.values))
                    if self._pieces:
                        return self._pieces.popleft()
                elif len(answer.values):
                    return InputBatch(self._batch(self._values(answer.values), answer.timestamps))
            elif isinstance(answer, End):
                self._ended = True
                return END_OF_INPUT
            elif isinstance(answer, NeedSplits):
                self._ready = self._async is not None  # a reader on asyncio may have given further answers already
                self._need_splits()
            elif isinstance(answer, Wait):
                self._ready = False
                if answer.seconds is not None:
                    self._call_after(max(SHORTEST_WAIT if answer.seconds > 0 else 0.0, answer.seconds))
            elif answer is None:
                self._ready = False
            else:
                raise ProgramError(
                    f"poll() of {type(self.reader).__name__} returned {type(answer).__name__}; it has to return a "
                    "SourceBatch, Wait, NEED_SPLITS or END"
                )
        return None

    def _values(self, values: Values) -> Values:
        """Keep columns, fitted to the declared type, if that has columns; convert them to records otherwise."""
        if isinstance(values, pa.RecordBatch) and self._columns is not None:
            return self._columns.fitted(values, f"a batch that source {self.name!r} read")
        return to_records(values, self._type)

    @staticmethod
    def _batch(values: Values, timestamps: Timestamps) -> Batch:
        """Make a batch with timestamps in the form that goes with the values; readers may give any form."""
        if isinstance(values, list):
            return Batch(values, to_list(timestamps))
        return Batch(values, as_array(timestamps))

    def _take(self, time: SourceTime, answer: SourceBatch[Any], records: Values) -> None:
        """Assign timestamps, and queue the records in pieces, cut where watermarks were emitted."""
        self._guard.active = self._token
        if len(records):
            timestamps, split = answer.timestamps, answer.split_id
            if isinstance(records, list):
                pieces = time.take(split, records, to_list(timestamps))
            else:
                pieces = time.take_columns(split, records, as_array(timestamps))
            for values, stamps, watermark in pieces:
                self._pieces.append(InputBatch(Batch(values, stamps)))
                if watermark is not None:
                    self._pieces.append(watermark)
        if answer.watermark is not None or answer.idle:
            source_watermark = time.emit(answer.split_id, answer.watermark, answer.idle)
            if source_watermark is not None:
                self._pieces.append(source_watermark)
        if answer.split_finished:
            # The finished split holds the watermark of the others back no longer.
            watermark_of_others = time.finished(answer.split_id)
            if watermark_of_others is not None:
                self._pieces.append(watermark_of_others)
        self._guard.active = None
        self._arm_interval()

    def _periodic(self) -> InBand | None:
        if self.time is None or self._ended:
            return None
        self._guard.active = self._token
        watermark = self.time.periodic()
        self._guard.active = None
        self._arm_interval()
        return watermark

    def _arm_interval(self) -> None:
        """Wake up at the end of the interval, if something may change by then; an idle source sleeps on."""
        if self._interval_timer is not None or self._interval <= 0 or self._ended or self._closed:
            return
        if self.time is not None and self.time.needs_interval and self._loop is not None:
            self._interval_timer = self._loop.call_later(self._interval, self._interval_passed)

    def _interval_passed(self) -> None:
        self._interval_timer = None
        if not self._ended and not self._closed:
            self._interval_over = True
            self._on_readable()

    @override
    def input_watermarks(self, current: int) -> dict[str, int]:
        behind = {} if self.time is None else self.time.furthest_behind(SHOWN_SPLITS)
        return {f"split.{split}.watermark.currentWatermark": watermark for split, watermark in behind.items()}

    @override
    def watermark_progress(self) -> list[dict[str, Any]]:
        return [] if self.time is None or self._ended else [self.time.progress()]

    def watermark_origin(self) -> str:
        """Name the source and, if known, the split that determines its watermark: the slowest that is not idle."""
        if self.time is not None:
            slowest = next(iter(self.time.furthest_behind(1)), None)
        else:
            slowest = next(iter(self._splits)) if len(self._splits) == 1 else None
        return f"source {self.name!r}" if slowest is None else f"source {self.name!r}, split {slowest!r}"

    @override
    def back_pressured(self, seconds: float) -> None:
        if self.time is not None:
            self.time.clock.exclude(seconds)

    def _arm_alignment(self) -> None:
        interval = None if self.time is None else self.time.strategy.alignment_update_interval
        if interval is not None and self._loop is not None and not self._ended and not self._closed:
            self._alignment_timer = self._loop.call_later(interval.to_nanos() / 1e9, self._report)

    def _report(self) -> None:
        group = None if self.time is None else self.time.strategy.alignment_group
        if self.time is not None and group is not None:
            # The task may live longer than its input, until a last checkpoint is complete.
            over = self._ended or self._closed
            self._report_watermark(group, MAX_WATERMARK if over else self.time.watermark)
            self._arm_alignment()

    def align(self, group_watermark: int) -> None:
        """Pause splits that are further ahead than their alignment group allows, and resume the others."""
        if self.time is not None and not self._closed and not self._ended:
            self._guard.active = self._token
            self.time.align(group_watermark, self.pause_splits, self.resume_splits)
            self._guard.active = None

    def _poll_reader(self) -> Any:
        """Poll the reader for as many records as reader and chain work off in their times."""
        if self._async is not None:
            self._pace.batch_done(_now())
            answer = self._async.take(self._pace.most)
            self._pace.batch_given(answer.values if isinstance(answer, SourceBatch) else [], _now())
            return answer
        reader = self.reader
        assert isinstance(reader, SourceReader)
        began, processor_began = _now(), processor_time() if self._source_makes_columns else None
        self._pace.batch_done(began)
        count = min(self._count, self._pace.most)
        self._guard.active = self._token
        answer = reader.poll(count)
        self._guard.active = None
        if isinstance(answer, SourceBatch):
            now = _now()
            self._pace.batch_given(answer.values, now)
            if not reader.blocking:
                self.seconds += now - began
            # A blocking reader waits for records, so the time of its poll says nothing about its speed.
            if not (reader.blocking and isinstance(answer.values, list)):
                limits = self._limits if isinstance(answer.values, list) else self._columnar_limits
                seconds = now - began
                if processor_began is not None:
                    seconds = work_seconds(seconds, processor_time() - processor_began)
                self._count = limits.next_count(count, answer.values, seconds)
        return answer

    def _need_splits(self) -> None:
        if self._no_more and self._async is None:
            raise asks_in_vain(self.reader)
        if not self._request_pending and not self._no_more:
            self._request_pending = True
            self._request_splits()

    def add_splits(self, splits: Sequence[Split], no_more: bool, serial: int = 0) -> None:
        """Take splits from the JobMaster; called on the task's loop.

        Args:
            splits: splits to read.
            no_more: whether no splits will come after these.
            serial: number of the assignment, which grows; 0 for an answer without an assignment.
        """
        if self._closed or self._ended or self._finished:
            return
        if serial or self._asks_again:
            # Otherwise the request still stands: a user's enumerator knows of it, and will answer it.
            self._request_pending = False
        self._serial = max(self._serial, serial)
        self._take_splits(splits, no_more)
        if splits or no_more:
            self._wake()
        elif self._asks_again:
            self._call_after(ASK_AGAIN_SECONDS)

    def _take_splits(self, splits: Sequence[Split], no_more: bool) -> None:
        self._guard.active = self._token
        decoded = [self._codec.from_plain(split) for split in splits]
        if self._async is not None:
            self._async.add_splits(decoded, no_more)
        else:
            if decoded:
                self.reader.add_splits(decoded)
            if no_more and not self._no_more:
                self.reader.no_more_splits()
        self._guard.active = None
        self._no_more = self._no_more or no_more
        for split in splits:
            self._splits[split.id] = split
            self.positions.setdefault(split.id, split.position)
            if self.time is not None and not self.reader.is_silent(split.id):
                self.time.add(split.id)

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Let the reader stop reading these splits, as they are ahead of their alignment group."""
        if self._async is not None:
            self._async.call(lambda: self.reader.pause_splits(split_ids))
        else:
            self.reader.pause_splits(split_ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Let the reader go on with these splits, and poll it."""
        if self._async is not None:
            self._async.call(lambda: self.reader.resume_splits(split_ids))
        else:
            self.reader.resume_splits(split_ids)
        self._wake()

    def _call_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            self._timer = self._loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._async is not None:
            self._async.wake()
        self._available()

    def _available(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._ready and not self._ended and not self._closed:
            self._ready = True
            self._on_readable()

    def close(self) -> None:
        """Close the reader. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for handle in (self._interval_timer, self._alignment_timer):
            if handle is not None:
                handle.cancel()
        self._report()
        if isinstance(self.reader, AsyncSourceReader):
            (self._async or self._polls(self.reader)).close()
        else:
            self.reader.close()
