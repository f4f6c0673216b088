"""Handles input that can't be read: it fails the job, is skipped and counted, or becomes a record of its own."""

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
"""Bytes of the input that a ``MalformedRecord`` holds at most."""
COUNTER: Final = "numRecordsInErrors"
"""Flink's name of the metric."""


class MalformedPolicy(Enum):
    """What a source does with a line or block that it can't read. None of them drops input silently.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import FileSource, MalformedPolicy, StreamFormat

        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "file:///data/lines.txt")
        source = builder.on_malformed(MalformedPolicy.SKIP).build()
        ```
    """

    FAIL = "fail"
    """The job fails with ``MalformedDataError``."""
    SKIP = "skip"
    """The input is counted, logged and left out."""
    EMIT = "emit"
    """A ``MalformedRecord`` takes the place of the input in the stream; it may be sent to a side output."""


@dataclass(frozen=True)
class MalformedRecord:
    """Stands in a stream for input that could not be read.

    Attributes:
        path: path of the file; for Kafka topic and partition.
        offset: byte of the decompressed file at which the input begins; for Kafka the offset of the record.
        reason: what is wrong with the input.
        data: first thousand bytes of the input; empty for blocks.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import MalformedRecord


        def amount(line):
            if isinstance(line, MalformedRecord):  # of a source with on_malformed(MalformedPolicy.EMIT)
                return f"{line.path}, byte {line.offset}: {line.reason}"
            return line


        print(amount(MalformedRecord("/data/sales.csv", 120, "2 fields instead of 3", b"tea,4")))
        ```

        ```text
        /data/sales.csv, byte 120: 2 fields instead of 3
        ```
    """

    path: str
    offset: int
    reason: str
    data: bytes = b""


class MalformedRecords:
    """Handles the malformed input of one reader.

    Args:
        policy: what to do with the input.
        context: context of the reader, whose metrics get the counter ``numRecordsInErrors``.

    Attributes:
        count: malformed lines and blocks so far that have not failed the job.

    Examples:
        ```python
        from firesteel.datastream.connectors.file_system import MalformedPolicy, MalformedRecords

        malformed = MalformedRecords(MalformedPolicy.EMIT)  # a FileFormat gets it from its source
        print(malformed.found("/data/sales.csv", 120, "2 fields instead of 3", b"tea,4")[0].reason, malformed.count)
        ```

        ```text
        2 fields instead of 3 1
        ```
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
        """Handle malformed input; returns what to emit instead: nothing, or one record.

        Args:
            path: path of the file, or another name of the input.
            offset: place at which the malformed input begins.
            reason: what is wrong.
            data: the malformed input.
            line: number of the line, if it is known.
            unit: unit of the offset.
            cause: error that was raised about the input.

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
