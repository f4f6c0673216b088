"""Counts records that came too late and were dropped, and logs why, at exponentially growing distances."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final

from firesteel.runtime.operator_base.context import OperatorContext, TaskRuntimeContext
from firesteel.runtime.operator_base.watermarks import time_text
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK

logger = logging.getLogger(__name__)
LATE_RECORDS_DROPPED: Final = "numLateRecordsDropped"


class LateRecords:
    """The late records that one operator has dropped.

    The 1st, 2nd, 4th, 8th, ... of them is logged as a warning. A single record whose time is far ahead makes all
    records behind it late, and nothing else would tell the user.

    Args:
        operator: name of the operator.
        context: context of the operator.
        runtime_context: user-facing context of the operator, with Flink's counter of dropped records.

    Attributes:
        count: number of dropped records.
    """

    __slots__ = ("_context", "_counter", "_operator", "count")

    def __init__(self, operator: str, context: OperatorContext, runtime_context: TaskRuntimeContext) -> None:
        self._operator, self._context = operator, context
        self._counter = runtime_context.get_metrics_group().counter(LATE_RECORDS_DROPPED)
        self.count = 0

    def drop(self, timestamp: int, watermark: int, records: int = 1) -> None:
        """Count dropped records.

        Args:
            timestamp: time of the last one, epoch ms.
            watermark: watermark behind which it came, epoch ms.
            records: number of records.
        """
        former_count = self.count
        self.count = count = former_count + records
        self._counter.inc(records)
        if former_count.bit_length() == count.bit_length():  # the count has passed no power of 2
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


def _distance(timestamp: int, watermark: int) -> str:
    if watermark in (MIN_WATERMARK, MAX_WATERMARK):
        return ""
    try:
        return f", {timedelta(milliseconds=watermark - timestamp)} ahead"
    except OverflowError:
        return ""
