"""Event time: timestamps of records, the watermark of one split, and the minimum over several.

Idleness is measured with an ``ActiveClock``, which stands still while the task is back-pressured: an input that can't
be read is not idle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkOutput, WatermarkStrategy
from firesteel.connectors.malformed import MalformedRecord
from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.expressions.schema import schema_of
from firesteel.expressions.timestamps import computing_timestamps
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.runtime.operator_base.sites import UserCode
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Watermark
from firesteel.runtime.records.columns import Stamps, StreamColumns, as_array
from firesteel.runtime.records.rows import to_list, to_records

logger = logging.getLogger(__name__)
HELD_SECONDS: Final = 60.0
"""Time for which a watermark has to stand still before the log says who holds it back, and between two such lines."""

_LONGEST_SPLIT: Final = 200
"""Characters of a split's id in a task's report: it may hold the path of a file."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FOLLOWING: Final = (WatermarkGeneratorKind.MONOTONOUS, WatermarkGeneratorKind.BOUNDED_OUT_OF_ORDERNESS)


class ActiveClock:
    """A monotonic clock that leaves out the time in which nothing could be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._excluded = 0.0

    def now(self) -> float:
        """Seconds, as of a monotonic clock, without those that were excluded."""
        return self._clock.monotonic() - self._excluded

    def epoch_ms(self) -> int:
        """The time of the clock (epoch ms), from which nothing is left out."""
        return self._clock.epoch_ms()

    def exclude(self, seconds: float) -> None:
        """Leave out this many seconds that have just passed."""
        self._excluded += seconds


class TimestampsOfColumns:
    """Computes the timestamps of whole batches by an expression over columns.

    Args:
        assigner: the expression.
        type_info: type of the records.
        null: stands for a null; None = a null is refused.

    Raises:
        ProgramError: the expression does not fit the type.
    """

    def __init__(self, assigner: ColumnTimestamps, type_info: TypeInformation | None, null: int | None = None) -> None:
        columns = None if type_info is None else schema_of(type_info)
        if type_info is None or columns is None:
            raise ProgramError(f"{assigner.expression} reads columns, and the records have none")
        self._columns = StreamColumns(type_info)
        self._compute = computing_timestamps(assigner, columns, null)

    def compute(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Compute the timestamp of each row."""
        stamps: npt.NDArray[np.int64] = self._compute(
            dict(zip(self._columns.names, batch.columns, strict=True)), batch.num_rows
        )
        return stamps

    def compute_rows(self, records: Sequence[Any]) -> npt.NDArray[np.int64]:
        """Compute the timestamp of each record, of which columns are made for it."""
        return self.compute(self._columns.from_records(records))


class EventTime(UserCode, WatermarkOutput):
    """Assigns timestamps and generates the watermark of one split, or of one operator.

    Args:
        name: name of the operator, for errors.
        strategy: watermark strategy of the program.
        clock: measures idleness.
        type_info: type of the records, if the timestamp assigner reads columns.

    Attributes:
        watermark: the last watermark emitted; ``MIN_WATERMARK`` in the beginning; it never goes back.
        idle: whether no records have come for the idle timeout of the strategy, or the generator has said so.
        paused: whether it is not read for now (watermark alignment); idleness is not measured then.
    """

    def __init__(
        self, name: str, strategy: WatermarkStrategy, clock: ActiveClock, type_info: TypeInformation | None = None
    ) -> None:
        self.name = name
        self.watermark = MIN_WATERMARK
        self.idle = False
        self._clock = clock
        self._assigner = strategy.timestamp_assigner
        self._columns = None
        if isinstance(self._assigner, ColumnTimestamps):
            self._columns = TimestampsOfColumns(self._assigner, type_info)
        self._watermarks = None
        self._delay = strategy.max_out_of_orderness.to_millis()
        if isinstance(strategy.watermark_assigner, ColumnTimestamps):
            self._watermarks = TimestampsOfColumns(strategy.watermark_assigner, type_info, MIN_WATERMARK)
            self._delay = -1  # the expression gives the watermark itself, not a timestamp that has been reached
        self._latest = MIN_WATERMARK
        self._timeout = None if strategy.idle_timeout is None else strategy.idle_timeout.to_nanos() / 1e9
        self._last_record = self._changed_at = clock.now()
        self._has_records = False
        self._paused_at: float | None = None
        self._emitted = False
        supplier = strategy.generator_supplier
        self._generator: Any = supplier() if supplier is not None else None
        self._follows = strategy.kind in _FOLLOWING
        self._is_clock = strategy.kind is WatermarkGeneratorKind.PROCESSING_TIME
        if supplier is not None and not callable(getattr(self._generator, "on_event", None)):
            raise ProgramError(
                f"the generator supplier of {name!r} returned {short_repr(self._generator, 80)}; it has to return a "
                "WatermarkGenerator, with on_event() and on_periodic_emit()"
            )
        refuse_coroutines(f"the watermark generator of {name!r}", self._generator)

    # -- records

    def take(self, records: Sequence[Any], stamps: list[int] | None) -> tuple[int, list[int] | None]:
        """Assign timestamps to records, and let them advance the watermark.

        Returns:
            How many records were taken, and their timestamps. If the generator emits a watermark after a record, those
            behind it are not taken.
        """
        if not records:
            return 0, stamps
        self._last_record, self._has_records = self._clock.now(), True
        self.idle = False
        if self._columns is not None:
            stamps = self._columns.compute_rows(records).tolist()
        if self._generator is not None:
            return self._one_by_one(records, stamps)
        assigned = self._assigner is not None and self._columns is None
        new_stamps = self._assigned(records, stamps) if assigned else stamps
        if self._watermarks is not None:
            self._latest = max(self._latest, int(self._watermarks.compute_rows(records).max()))
        elif self._follows and new_stamps is not None:
            self._latest = max(self._latest, max(new_stamps))
        return len(records), new_stamps

    def take_columns(self, batch: pa.RecordBatch, stamps: Stamps) -> Stamps:
        """Like ``take``, for columns and strategies without a custom generator: all rows are taken.

        A timestamp assigner that is a Python function gets rows.
        """
        if not batch.num_rows:
            return stamps
        self._last_record, self._has_records = self._clock.now(), True
        self.idle = False
        if self._columns is not None:
            stamps = self._columns.compute(batch)
        elif self._assigner is not None:
            stamps = as_array(self._assigned(to_records(batch), to_list(stamps)))
        if self._watermarks is not None:
            self._latest = max(self._latest, int(self._watermarks.compute(batch).max()))
        elif self._follows and stamps is not None:
            self._latest = max(self._latest, int(stamps.max()))
        return stamps

    def _assigned(self, records: Sequence[Any], stamps: list[int] | None) -> list[int]:
        """Call the timestamp assigner for each record, with the record's former timestamp.

        A malformed record for which it raises has no timestamp, and does not take event time on.
        """
        extract, former_stamps = self._assigner.extract_timestamp, iter(stamps or ())  # type: ignore[union-attr]
        new_stamps: list[int] = []
        append = new_stamps.append
        for value in records:
            try:
                timestamp = extract(value, next(former_stamps, MIN_WATERMARK))
            except Exception:
                if not isinstance(value, MalformedRecord):
                    raise
                timestamp = MIN_WATERMARK
            if timestamp.__class__ is not int:
                timestamp = _whole(timestamp)
            append(timestamp)
        if min(new_stamps) < MIN_WATERMARK or max(new_stamps) > MAX_WATERMARK:
            # Raise the error while ``value`` is the record at fault.
            for value, timestamp in zip(records, new_stamps, strict=True):  # noqa: B007 - read from the traceback
                _whole(timestamp)
        return new_stamps

    def _one_by_one(self, records: Sequence[Any], stamps: list[int] | None) -> tuple[int, list[int] | None]:
        """Take records one by one, for a custom generator, up to the first at which that emits a watermark."""
        assigned = self._assigner is not None and self._columns is None
        extract = self._assigner.extract_timestamp if assigned else None  # type: ignore[union-attr]
        on_event, former_stamps = self._generator.on_event, iter(stamps or ())
        new_stamps: list[int] | None = None if extract is None and stamps is None else []
        count = 0
        self._emitted = False
        for value in records:
            count += 1
            timestamp = next(former_stamps, MIN_WATERMARK)
            if extract is not None:
                try:
                    timestamp = _whole(extract(value, timestamp))
                except Exception:
                    if not isinstance(value, MalformedRecord):
                        raise
                    new_stamps.append(MIN_WATERMARK)  # type: ignore[union-attr] # there is an assigner
                    continue
            if new_stamps is not None:
                new_stamps.append(timestamp)
            on_event(value, timestamp, self)
            if self._emitted:
                break
        return count, new_stamps

    def periodic(self) -> None:
        """Emit a watermark, and check whether the input is idle, as the watermark interval has passed."""
        if self._follows:
            if self._latest != MIN_WATERMARK and self._latest - self._delay - 1 > self.watermark:
                self.watermark, self._changed_at = self._latest - self._delay - 1, self._clock.now()
        elif self._generator is not None:
            self._generator.on_periodic_emit(self)
        elif self._is_clock:
            self.emit_watermark(self._clock.epoch_ms() - 1)
        silent = self._clock.now() - self._last_record
        if self._timeout is not None and silent >= self._timeout and not self.paused:
            self.idle = True

    # -- what generators call

    @override
    def emit_watermark(self, watermark: int) -> None:
        whole = watermark if watermark.__class__ is int else _whole(getattr(watermark, "timestamp", watermark))
        self.idle = False
        if whole > self.watermark:
            self.watermark, self._changed_at = min(whole, MAX_WATERMARK), self._clock.now()
            self._emitted = True

    @override
    def mark_idle(self) -> None:
        self._emitted = self._emitted or not self.idle
        self.idle = True

    @override
    def mark_active(self) -> None:
        self.idle = False

    def progress(self) -> dict[str, Any]:
        """For how long the watermark has not risen, and no record has come (``WATERMARK_PROGRESS``)."""
        now = self._clock.now()
        return {
            "still_ms": round((now - self._changed_at) * 1000),
            "silent_ms": round((now - self._last_record) * 1000) if self._has_records else -1,
            "idleness": self._timeout is not None,
        }

    # -- alignment

    def pause(self) -> None:
        """Stop measuring idleness, as the split is not read from now on."""
        if self._paused_at is None:
            self._paused_at = self._clock.now()

    def resume(self) -> None:
        """Measure idleness again, as the split is read again; the time in between does not count."""
        if self._paused_at is not None:
            self._last_record += self._clock.now() - self._paused_at
            self._paused_at = None

    @property
    def paused(self) -> bool:
        return self._paused_at is not None


def _whole(timestamp: Any) -> int:
    if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
        raise ProgramError(
            f"a timestamp is an int of milliseconds since 1970-01-01 UTC, not {short_repr(timestamp, 80)} "
            f"({type(timestamp).__name__})"
        )
    whole = int(timestamp.__index__())
    if not MIN_WATERMARK <= whole <= MAX_WATERMARK:
        raise ProgramError(f"a timestamp has to fit into 64 bits; {whole} does not")
    return whole


def progress_of(members: Mapping[str, EventTime], *, is_idle: bool) -> dict[str, Any]:
    """What a task reports of the watermarks that it makes (``WATERMARK_PROGRESS``).

    Args:
        members: by id of the split; of an operator only one, whose id is empty.
        is_idle: whether the task emits no watermarks for now.
    """
    active = [(time.watermark, split) for split, time in members.items() if not time.idle]
    not_ended = [watermark for watermark in active if watermark[0] != MAX_WATERMARK]
    progress: dict[str, Any] = {
        "input": 0,
        "members": len(members),
        "idle": len(members) - len(active),
        "ended": len(active) - len(not_ended),
        "all_idle": is_idle,
    }
    if not_ended:
        watermark, split = min(not_ended)
        progress |= {"watermark": watermark, "ahead": max(not_ended)[0], **members[split].progress()}
        progress["split"] = split[:_LONGEST_SPLIT]
    return progress


class CombinedWatermark:
    """The watermark of several parts: the minimum over those that are not idle. It never goes back.

    A part that has ended (``MAX_WATERMARK``) counts only when all have: otherwise it would push parts that are idle for
    now past their future records.

    Attributes:
        watermark: the combined watermark.
        idle: whether all parts that have not ended are idle.
    """

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.idle = False

    def update(self, parts: Iterable[tuple[int, bool]]) -> bool:
        """Combine all parts (watermark, idle); returns whether the watermark or the status has changed."""
        former = (self.watermark, self.idle)
        lowest: int | None = None
        idle = ended = False
        for watermark, is_idle in parts:
            if watermark == MAX_WATERMARK:
                ended = True
            elif is_idle:
                idle = True
            elif lowest is None or watermark < lowest:
                lowest = watermark
        if lowest is None and ended and not idle:
            lowest = MAX_WATERMARK
        self.idle = lowest is None and idle
        if lowest is not None and lowest > self.watermark:
            self.watermark = lowest
        return former != (self.watermark, self.idle)

    @property
    def element(self) -> Watermark:
        """The watermark and status as an in-band element."""
        return Watermark(self.watermark, self.idle)


class HeldBack:
    """Logs who holds a watermark back, at most once in ``HELD_SECONDS``.

    Args:
        name: name of the task.
        clock: measures for how long the watermark stands still.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._watermark = MIN_WATERMARK
        self._since = clock.monotonic()

    def look(self, watermark: int, parts: Iterable[tuple[str, int, bool]]) -> None:
        """Log if a watermark, the minimum of parts (name, watermark, idle), has stood still for too long."""
        now = self._clock.monotonic()
        if watermark != self._watermark or watermark == MAX_WATERMARK:
            self._watermark, self._since = watermark, now
            return
        if now - self._since < HELD_SECONDS:
            return
        # Parts that have ended are left out: they hold nothing back, and a source without watermarks ends with one.
        active = [(mark, name) for name, mark, idle in parts if not idle and mark != MAX_WATERMARK]
        if not active:
            return
        lowest, highest = min(active), max(active)
        if highest[0] > lowest[0]:
            self._since = now
            logger.warning(
                "%s: the watermark has stood at %s for %d s since %s holds it back, while %s is at %s; "
                "WatermarkStrategy.with_idleness() leaves out inputs without records",
                self._name,
                time_text(watermark),
                HELD_SECONDS,
                lowest[1],
                highest[1],
                time_text(highest[0]),
            )


def time_text(timestamp: int) -> str:
    """A time in epoch ms as text for people, with the number, as programs may use numbers that are no dates."""
    if timestamp == MIN_WATERMARK:
        return "no watermark"
    if timestamp == MAX_WATERMARK:
        return "the end of the input"
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec='milliseconds')} ({timestamp})"
    except OverflowError:
        return str(timestamp)
