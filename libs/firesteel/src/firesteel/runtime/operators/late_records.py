"""Records that came too late and are dropped: they are counted, and the log says why, ever more seldom."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from firesteel.runtime.operator_base.context import OperatorContext, TaskRuntimeContext
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK

logger = logging.getLogger(__name__)
LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LateRecords:
    """The late records of one operator that went nowhere.

    The 1st, 2nd, 4th, 8th, ... of them is a warning. One record whose time is far ahead makes all records behind it
    late, which nothing else would say.

    Args:
        operator: its name.
        context: of the operator.
        runtime_context: of the operator; has Flink's counter of such records.

    Attributes:
        count: of the records.
    """

    __slots__ = ("_context", "_counter", "_operator", "count")

    def __init__(self, operator: str, context: OperatorContext, runtime_context: TaskRuntimeContext) -> None:
        self._operator, self._context = operator, context
        self._counter = runtime_context.get_metrics_group().counter(LATE_RECORDS_DROPPED)
        self.count = 0

    def drop(self, timestamp: int, watermark: int, records: int = 1) -> None:
        """Count records.

        Args:
            timestamp: of the last one, epoch ms.
            watermark: that it came behind.
            records: number of them.
        """
        before = self.count
        self.count = count = before + records
        self._counter.inc(records)
        if before.bit_length() == count.bit_length():  # no power of 2 was passed
            return
        origin = self._context.watermark_origin()
        logger.warning(
            "%s, %s: %d late record%s dropped so far; the last one has the time %s, and the watermark is at %s%s%s. A "
            "record whose time is far ahead makes all that come behind it late; a side output for late records "
            "(side_output_late_data) keeps them",
            self._context.info.full_name,
            self._operator,
            count,
            " was" if count == 1 else "s were",
            time_text(timestamp),
            time_text(watermark),
            _distance(timestamp, watermark),
            f", which comes from {origin}" if origin else "",
        )


def time_text(timestamp: int) -> str:
    """A time in epoch ms, for people; as a number too, where it may be one of the program's own."""
    if timestamp == MAX_WATERMARK:
        return "the end of the input"
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp)).isoformat(timespec='milliseconds')} ({timestamp})"
    except OverflowError:
        return str(timestamp)


def _distance(timestamp: int, watermark: int) -> str:
    if watermark in (MIN_WATERMARK, MAX_WATERMARK):
        return ""
    try:
        return f", {timedelta(milliseconds=watermark - timestamp)} ahead"
    except OverflowError:
        return ""
