"""Event time: timestamps of records, the watermark of one split, and minima over several.

Times that idleness is measured with are seconds of an ``ActiveClock``, which stands still while the task is
back-pressured: what can't be read is not idle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkOutput, WatermarkStrategy
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
"""A log line says who holds the watermark back when it stood still for so long, and again after each such time."""

_FOLLOWING: Final = (WatermarkGeneratorKind.MONOTONOUS, WatermarkGeneratorKind.BOUNDED_OUT_OF_ORDERNESS)


class ActiveClock:
    """Monotonic seconds without those in which nothing could be read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._excluded = 0.0

    def now(self) -> float:
        """Seconds."""
        return self._clock.monotonic() - self._excluded

    def exclude(self, seconds: float) -> None:
        """So many seconds that have passed do not count."""
        self._excluded += seconds


class TimestampsOfColumns:
    """Computes the timestamps of whole batches.

    Args:
        assigner: the expression.
        type_info: of the records.

    Raises:
        ProgramError: the expression does not fit.
    """

    def __init__(self, assigner: ColumnTimestamps, type_info: TypeInformation | None) -> None:
        columns = None if type_info is None else schema_of(type_info)
        if type_info is None or columns is None:
            raise ProgramError(f"{assigner.expression} reads columns, and the records have none")
        self._columns = StreamColumns(type_info)
        self._compute = computing_timestamps(assigner, columns)

    def of(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The timestamp of each row."""
        found: npt.NDArray[np.int64] = self._compute(
            dict(zip(self._columns.names, batch.columns, strict=True)), batch.num_rows
        )
        return found

    def of_rows(self, records: Sequence[Any]) -> npt.NDArray[np.int64]:
        """The timestamp of each record."""
        return self.of(self._columns.from_records(records))


class EventTime(UserCode, WatermarkOutput):
    """Timestamps and watermark of one split, or of one operator.

    Args:
        name: of the operator, for errors.
        strategy: of the program.
        clock: measures idleness.
        type_info: of the records, if the timestamp assigner reads columns.

    Attributes:
        watermark: emitted last; ``MIN_WATERMARK`` in the beginning; never goes back.
        idle: without records for so long as the strategy says, or as the generator says.
        paused: not read for now (alignment); its idleness is not measured.
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
        self._delay = strategy.max_out_of_orderness.to_millis()
        self._latest = MIN_WATERMARK
        self._timeout = None if strategy.idle_timeout is None else strategy.idle_timeout.to_nanos() / 1e9
        self._last_record = clock.now()
        self._paused_at: float | None = None
        self._emitted = False
        supplier = strategy.generator_supplier
        self._generator: Any = supplier() if supplier is not None else None
        self._follows = strategy.kind in _FOLLOWING
        if supplier is not None and not callable(getattr(self._generator, "on_event", None)):
            raise ProgramError(
                f"the generator supplier of {name!r} returned {short_repr(self._generator, 80)}; it has to return a "
                "WatermarkGenerator, with on_event() and on_periodic_emit()"
            )
        refuse_coroutines(f"the watermark generator of {name!r}", self._generator)

    # -- records

    def take(self, records: Sequence[Any], stamps: list[int] | None) -> tuple[int, list[int] | None]:
        """Assign timestamps, and take note of records.

        Returns:
            How many records were taken (fewer than there are when the generator emitted a watermark after one of them),
            and their timestamps.
        """
        if not records:
            return 0, stamps
        self._last_record = self._clock.now()
        self.idle = False
        if self._columns is not None:
            stamps = self._columns.of_rows(records).tolist()
        if self._generator is not None:
            return self._one_by_one(records, stamps)
        assigned = self._assigner is not None and self._columns is None
        found = self._assigned(records, stamps) if assigned else stamps
        if self._follows and found is not None:
            self._latest = max(self._latest, max(found))
        return len(records), found

    def take_columns(self, batch: pa.RecordBatch, stamps: Stamps) -> Stamps:
        """The same for columns, as far as no generator looks at records: all are taken.

        A timestamp assigner that is no expression gets rows.
        """
        if not batch.num_rows:
            return stamps
        self._last_record = self._clock.now()
        self.idle = False
        if self._columns is not None:
            stamps = self._columns.of(batch)
        elif self._assigner is not None:
            stamps = as_array(self._assigned(to_records(batch), to_list(stamps)))
        if self._follows and stamps is not None:
            self._latest = max(self._latest, int(stamps.max()))
        return stamps

    def _assigned(self, records: Sequence[Any], stamps: list[int] | None) -> list[int]:
        extract, given = self._assigner.extract_timestamp, iter(stamps or ())  # type: ignore[union-attr]
        found: list[int] = []
        append = found.append
        for value in records:
            timestamp = extract(value, next(given, MIN_WATERMARK))
            if timestamp.__class__ is not int:
                timestamp = _whole(timestamp)
            append(timestamp)
        if min(found) < MIN_WATERMARK or max(found) > MAX_WATERMARK:
            for value, timestamp in zip(records, found, strict=True):  # noqa: B007 - read from the traceback
                _whole(timestamp)
        return found

    def _one_by_one(self, records: Sequence[Any], stamps: list[int] | None) -> tuple[int, list[int] | None]:
        assigned = self._assigner is not None and self._columns is None
        extract = self._assigner.extract_timestamp if assigned else None  # type: ignore[union-attr]
        on_event, given = self._generator.on_event, iter(stamps or ())
        found: list[int] | None = None if extract is None and stamps is None else []
        count = 0
        self._emitted = False
        for value in records:
            count += 1
            timestamp = next(given, MIN_WATERMARK)
            if extract is not None:
                timestamp = _whole(extract(value, timestamp))
            if found is not None:
                found.append(timestamp)
            on_event(value, timestamp, self)
            if self._emitted:
                break
        return count, found

    def periodic(self) -> None:
        """The interval has passed: emit, and look whether the input is idle."""
        if self._follows:
            if self._latest != MIN_WATERMARK:
                self.watermark = max(self.watermark, self._latest - self._delay - 1)
        elif self._generator is not None:
            self._generator.on_periodic_emit(self)
        silent = self._clock.now() - self._last_record
        if self._timeout is not None and silent >= self._timeout and not self.paused:
            self.idle = True

    # -- what generators call

    @override
    def emit_watermark(self, watermark: int) -> None:
        whole = watermark if watermark.__class__ is int else _whole(getattr(watermark, "timestamp", watermark))
        self.idle = False
        if whole > self.watermark:
            self.watermark = min(whole, MAX_WATERMARK)
            self._emitted = True

    @override
    def mark_idle(self) -> None:
        self._emitted = self._emitted or not self.idle
        self.idle = True

    @override
    def mark_active(self) -> None:
        self.idle = False

    # -- alignment

    def pause(self) -> None:
        """It is not read from now on."""
        if self._paused_at is None:
            self._paused_at = self._clock.now()

    def resume(self) -> None:
        """It is read again; the time in between does not count as idle."""
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


class CombinedWatermark:
    """The watermark of several parts: the minimum over those that are not idle. It never goes back.

    A part that has come to its end (``MAX_WATERMARK``) counts only when all have: it must not push the rest, of which
    some are idle for now, past their records.

    Attributes:
        watermark, idle: of all together; idle when all are that have not ended.
    """

    def __init__(self) -> None:
        self.watermark = MIN_WATERMARK
        self.idle = False

    def update(self, parts: Iterable[tuple[int, bool]]) -> bool:
        """Look at all parts (watermark, idle); returns whether anything changed."""
        before = (self.watermark, self.idle)
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
        return before != (self.watermark, self.idle)

    @property
    def element(self) -> Watermark:
        """As it is sent."""
        return Watermark(self.watermark, self.idle)


class HeldBack:
    """Says in the log who holds a watermark back, at most once in ``HELD_SECONDS``.

    Args:
        name: of the task.
        clock: injected.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._watermark = MIN_WATERMARK
        self._since = clock.monotonic()

    def look(self, watermark: int, parts: Iterable[tuple[str, int, bool]]) -> None:
        """Look at a watermark and the parts (name, watermark, idle) that it is the minimum of."""
        now = self._clock.monotonic()
        if watermark != self._watermark or watermark == MAX_WATERMARK:
            self._watermark, self._since = watermark, now
            return
        if now - self._since < HELD_SECONDS:
            return
        # of what has ended nothing is held back, and a source without watermarks ends with one
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
                shown(watermark),
                HELD_SECONDS,
                lowest[1],
                highest[1],
                shown(highest[0]),
            )


def shown(watermark: int) -> str:
    """A watermark for people."""
    if watermark == MIN_WATERMARK:
        return "no watermark"
    return "the end" if watermark == MAX_WATERMARK else str(watermark)
