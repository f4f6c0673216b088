"""Event time inside a source: one watermark for each split, their minimum, idleness, and watermark alignment."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.core.clock import Clock
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.runtime.operator_base.base import Coercer
from firesteel.runtime.operator_base.sites import UserCode
from firesteel.runtime.operator_base.watermarks import ActiveClock, CombinedWatermark, EventTime, HeldBack, progress_of
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK, Timestamps, Values, Watermark
from firesteel.runtime.records.columns import Stamps, as_array
from firesteel.runtime.records.rows import to_list, to_records

Piece = tuple[Values, Timestamps, Watermark | None]
"""Records, their timestamps, and the watermark behind them if there is one."""


class SourceTime(UserCode):
    """Assigns timestamps to the records of each split, and combines the watermarks of all splits.

    Args:
        name: name of the source, for errors.
        task_name: name of the task, for the log.
        strategy: watermark strategy of the program.
        clock: clock for idleness.
        coerce: fits records to their declared type, before the timestamp assigner sees them.
        type_info: type of the records.
    """

    def __init__(
        self,
        name: str,
        task_name: str,
        strategy: WatermarkStrategy,
        clock: Clock,
        coerce: Coercer | None,
        type_info: TypeInformation | None = None,
    ) -> None:
        self.name = name
        self.clock = ActiveClock(clock)
        self.strategy = strategy
        self.splits: dict[str, EventTime] = {}
        self._coerce, self._type = coerce, type_info
        self._combined = CombinedWatermark()
        self._held_back_log = HeldBack(task_name, clock)
        self._empty_since = self.clock.now()
        self._finished_watermark = MIN_WATERMARK
        """The highest watermark of the finished splits: short ones may end before the interval passes once."""
        self._new_records = False
        timeout = strategy.idle_timeout
        self._timeout = None if timeout is None else timeout.to_nanos() / 1e9

    @property
    def needs_rows(self) -> bool:
        """Whether Python code has to look at each record: a timestamp assigner or a custom generator."""
        assigner = self.strategy.timestamp_assigner
        calls = assigner is not None and not isinstance(assigner, ColumnTimestamps)
        return calls or self.strategy.kind is WatermarkGeneratorKind.GENERATOR

    @property
    def needs_interval(self) -> bool:
        """Whether the watermark or the status may change at the end of the interval even if no record comes."""
        if self._new_records or self.strategy.kind is WatermarkGeneratorKind.GENERATOR:
            return True
        return self._timeout is not None and not self._combined.idle

    # -- splits

    def add(self, split_id: str) -> None:
        """Let the watermark of a split count from now on."""
        if split_id not in self.splits:
            self.splits[split_id] = EventTime(self.name, self.strategy, self.clock, self._type)

    def finished(self, split_id: str) -> Watermark | None:
        """Forget a finished split, which holds the others back no longer; returns a watermark to emit."""
        split = self.splits.pop(split_id, None)
        if split is None:
            return None
        split.periodic()
        self._finished_watermark = max(self._finished_watermark, split.watermark)
        if not self.splits:
            self._empty_since = self.clock.now()
        return self._changed()

    # -- records

    def take(self, split_id: str, values: list[Any], stamps: list[int] | None) -> list[Piece]:
        """Assign timestamps to a batch of a split, and cut it behind records at which a watermark was emitted."""
        self.add(split_id)
        split = self.splits[split_id]
        self._new_records = True
        if self._coerce is not None:
            values = self._coerced(values)
        count, new_stamps = split.take(values, stamps)
        if count == len(values):  # the usual case: only custom generators emit at a record
            return [(values, new_stamps, self._changed())]
        pieces: list[Piece] = []
        while True:
            pieces.append((values[:count], new_stamps, self._changed()))
            values, stamps = values[count:], None if stamps is None else stamps[count:]
            if not values:
                return pieces
            count, new_stamps = split.take(values, stamps)

    def take_columns(self, split_id: str, batch: pa.RecordBatch, stamps: Stamps) -> list[Piece]:
        """Like ``take``, for columns of the declared type; the pieces are views of the batch."""
        self.add(split_id)
        split = self.splits[split_id]
        self._new_records = True
        if self.strategy.kind is not WatermarkGeneratorKind.GENERATOR:
            return [(batch, split.take_columns(batch, stamps), self._changed())]
        records, stamp_list = to_records(batch), to_list(stamps)
        pieces: list[Piece] = []
        start = 0
        while start < len(records):
            count, new_stamps = split.take(records[start:], None if stamp_list is None else stamp_list[start:])
            pieces.append((batch.slice(start, count), as_array(new_stamps), self._changed()))
            start += count
        return pieces

    def _coerced(self, records: list[Any]) -> list[Any]:
        coerce, fitted = self._coerce, []
        assert coerce is not None
        for value in records:
            fitted.append(coerce(value))
        return fitted

    def emit(self, split_id: str, watermark: int | None, idle: bool) -> Watermark | None:
        """Take the watermark or idleness that the source itself emits; ignored if the strategy makes watermarks."""
        if self.strategy.kind is not WatermarkGeneratorKind.OF_SOURCE:
            return None
        self.add(split_id)
        split = self.splits[split_id]
        if watermark is not None:
            split.emit_watermark(watermark)
        if idle:
            split.mark_idle()
        return self._changed()

    # -- the clock

    def periodic(self) -> Watermark | None:
        """Look at the clock, as the watermark interval has passed; returns the watermark if it has changed."""
        self._new_records = False
        for split in self.splits.values():
            split.periodic()
        changed = self._changed()
        self._held_back_log.look(
            self._combined.watermark,
            ((f"split {name!r}", split.watermark, split.idle) for name, split in self.splits.items()),
        )
        return changed

    def _changed(self) -> Watermark | None:
        parts = [(split.watermark, split.idle) for split in self.splits.values()]
        if not parts:
            # A source without splits keeps its watermark, and turns idle like a split without records. Before that it
            # takes the watermark of what it has read, or files that are read at once would never close a window.
            seconds_without = self.clock.now() - self._empty_since
            times_out = self._timeout is not None and seconds_without >= self._timeout
            watermark = self._combined.watermark
            if times_out:
                watermark = max(watermark, self._finished_watermark)
            parts = [(watermark, times_out and watermark == self._combined.watermark)]
        return self._combined.element if self._combined.update(parts) else None

    def furthest_behind(self, count: int) -> dict[str, int]:
        """The lowest watermarks, of at most ``count`` splits; idle splits are left out, as they hold nothing back."""
        active = ((split.watermark, name) for name, split in list(self.splits.items()) if not split.idle)
        return {name: watermark for watermark, name in heapq.nsmallest(count, active)}

    def progress(self) -> dict[str, Any]:
        """What holds the source's watermark back (``WATERMARK_PROGRESS``); may be called from any thread."""
        progress = progress_of(dict(self.splits), is_idle=self._combined.idle)
        if not progress["members"] and not self._combined.idle:
            # Without splits the source keeps its watermark, with which it holds others back until it turns idle.
            watermark, still_ms = self._combined.watermark, round((self.clock.now() - self._empty_since) * 1000)
            progress |= {"watermark": watermark, "ahead": watermark, "still_ms": still_ms}
        return progress

    # -- alignment

    @property
    def watermark(self) -> int:
        """The watermark with which the source holds its alignment group back.

        It is ``MAX_WATERMARK``, which holds nobody back, while the source is idle, has no split, or has read no record:
        it may never get any, because there are fewer splits than subtasks or its split is empty. As in Flink.
        """
        if not self.splits or self._combined.idle or self._combined.watermark == MIN_WATERMARK:
            return MAX_WATERMARK
        return self._combined.watermark

    def align(
        self, group_watermark: int, pause: Callable[[list[str]], None], resume: Callable[[list[str]], None]
    ) -> None:
        """Pause splits that are further ahead of the group than the strategy allows, and resume the others."""
        drift = self.strategy.alignment_max_drift
        allowed = MAX_WATERMARK if drift is None else min(MAX_WATERMARK, group_watermark + drift.to_millis())
        ahead = [name for name, split in self.splits.items() if split.watermark > allowed and not split.paused]
        behind = [name for name, split in self.splits.items() if split.watermark <= allowed and split.paused]
        for name in ahead:
            self.splits[name].pause()
        for name in behind:
            self.splits[name].resume()
        if ahead:
            pause(ahead)
        if behind:
            resume(behind)
