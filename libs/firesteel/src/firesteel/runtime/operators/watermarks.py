"""The operator of ``assign_timestamps_and_watermarks`` in the middle of a program, behind other operators."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.common.watermark_strategy import WatermarkGeneratorKind, WatermarkStrategy
from firesteel.core.errors import ProgramError
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.watermarks import ActiveClock, CombinedWatermark, EventTime, progress_of
from firesteel.runtime.records.batch import MAX_WATERMARK, Watermark
from firesteel.runtime.records.columns import Stamps


class WatermarksOperator(Operator):
    """Assigns timestamps and generates watermarks; of those from upstream only the last one passes.

    It has a stage of its own in the chain, and takes batches instead of single records.

    Attributes:
        clock: clock for idleness; it stands still while the task is back-pressured, when no records can come.
    """

    takes_changes = True

    clock: ActiveClock

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, WatermarkStrategy):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not a WatermarkStrategy")
        self._strategy = spec.function
        self._sent = CombinedWatermark()
        self._ended = False

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self.clock = ActiveClock(context.clock)
        self._time = EventTime(self.name, self._strategy, self.clock, self.spec.extra.get("input_type"))

    def take(self, values: list[Any], stamps: list[int] | None) -> tuple[list[int] | None, Watermark | None]:
        """Assign timestamps to records; returns them, and the watermark behind the records if one was emitted.

        ``values`` is cut behind the record at which the generator emitted a watermark. The caller passes the records
        that were cut off again.
        """
        count, new_stamps = self._time.take(values, stamps)
        del values[count:]
        return new_stamps, self._changed()

    @property
    def takes_columns(self) -> bool:
        """Whether the operator takes columns; only custom generators have to see each record."""
        return self._strategy.kind is not WatermarkGeneratorKind.GENERATOR

    def take_columns(self, batch: pa.RecordBatch, stamps: Stamps) -> tuple[Stamps, Watermark | None]:
        """Like ``take``, for columns, which are always taken whole."""
        return self._time.take_columns(batch, stamps), self._changed()

    def periodic(self) -> Watermark | None:
        """Look at the clock, as the watermark interval has passed; returns the watermark if it has changed."""
        if self._ended:
            return None
        self._time.periodic()
        return self._changed()

    def progress(self) -> dict[str, Any]:
        """What holds back the watermarks that the operator makes (``WATERMARK_PROGRESS``)."""
        return progress_of({"": self._time}, is_idle=self._time.idle)

    def passes(self, watermark: Watermark) -> bool:
        """Whether a watermark from upstream passes this operator: only the last one does."""
        if watermark.timestamp == MAX_WATERMARK:
            self._ended = True
        return self._ended

    def _changed(self) -> Watermark | None:
        changed = self._sent.update(((self._time.watermark, self._time.idle),))
        return self._sent.element if changed else None
