"""What becomes of input that can't be read: an error, a counted skip, or a record of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from firesteel.core.errors import MalformedDataError
from firesteel.functions.source import ReaderContext

__all__ = ["MalformedPolicy", "MalformedRecord", "MalformedRecords"]

logger = logging.getLogger(__name__)

SHOWN_BYTES: Final = 1000
"""So much of a malformed record is kept."""
COUNTER: Final = "numRecordsInErrors"
"""Flink's name for the metric of a source."""


class MalformedPolicy(Enum):
    """What a source does with a line or block that it can't read. Nothing is ever dropped in silence."""

    FAIL = "fail"
    """The job fails with ``MalformedDataError``."""
    SKIP = "skip"
    """It is counted, logged and left out."""
    EMIT = "emit"
    """A ``MalformedRecord`` takes its place in the stream, for instance to be sent to a side output."""


@dataclass(frozen=True)
class MalformedRecord:
    """Stands in a stream for what could not be read.

    Attributes:
        path: of the file; of Kafka, topic and partition.
        offset: byte at which it begins, in the decompressed data; of Kafka, the record's offset.
        reason: what is wrong.
        data: its first thousand bytes; empty for blocks.
    """

    path: str
    offset: int
    reason: str
    data: bytes = b""


class MalformedRecords:
    """One reader's way with malformed input.

    Args:
        policy: what to do.
        context: of the reader; its metrics get the counter ``numRecordsInErrors``.

    Attributes:
        count: malformed lines and blocks so far that did not fail the job.
    """

    def __init__(self, policy: MalformedPolicy = MalformedPolicy.FAIL, context: ReaderContext | None = None) -> None:
        self.policy = policy
        self.count = 0
        runtime = None if context is None else context.runtime_context()
        self._counter: Any = None
        if runtime is not None and policy is not MalformedPolicy.FAIL:
            self._counter = runtime.get_metrics_group().counter(COUNTER)

    def found(
        self,
        path: str,
        offset: int,
        reason: str,
        data: bytes = b"",
        *,
        line: int | None = None,
        unit: str = "byte",
        cause: BaseException | None = None,
    ) -> list[MalformedRecord]:
        """What to put into the stream instead: nothing, or one record.

        Args:
            path: of the file, or what else the input is called.
            offset: where it begins.
            reason: what is wrong.
            data: the input.
            line: its number, if known.
            unit: of the offset.
            cause: what was raised about it.

        Raises:
            MalformedDataError: the policy is to fail.
        """
        if self.policy is MalformedPolicy.FAIL:
            if unit != "byte":
                raise MalformedDataError(f"{path}, {unit} {offset}", None, None, _with_data(reason, data)) from cause
            raise MalformedDataError(path, offset, line, _with_data(reason, data)) from cause
        self.count += 1
        if self._counter is not None:
            self._counter.inc()
        if self.policy is MalformedPolicy.EMIT:
            return [MalformedRecord(path, offset, reason, data[:SHOWN_BYTES])]
        if self.count & (self.count - 1) == 0:  # 1, 2, 4, 8, ...: a bad file must not fill the log
            logger.warning(
                "skipped malformed input, %d so far in this subtask: %s, %s %d: %s",
                self.count,
                path,
                unit,
                offset,
                _with_data(reason, data),
            )
        return []


def _with_data(reason: str, data: bytes) -> str:
    if not data:
        return reason
    shown = data[:80].decode("utf-8", "backslashreplace")
    return f"{reason} in {shown!r}{'...' if len(data) > 80 else ''}"
