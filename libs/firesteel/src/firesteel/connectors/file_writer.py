"""The writer of a file sink: it assigns records to parts, and closes parts that are full."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.common.serialization import BulkWriterFactory, Encoder
from firesteel.connectors.file_layout import BucketAssigner, OutputFileConfig, RollingPolicy
from firesteel.connectors.filesystems.file_system import FileSystems, Persisted, scheme_of
from firesteel.connectors.part_files import PartFile, part_maker
from firesteel.core.clock import Clock
from firesteel.core.errors import CheckpointVersionError, StateRestoreError
from firesteel.expressions.values import records_of
from firesteel.functions.sink import WriterContext
from firesteel.functions.two_phase import TwoPhaseWriter, WriterState


def _write_rows(records: list[Any], part: PartFile, start: int, limit: int | None) -> int:
    return part.write(records, start, limit)


def _write_columns(batch: pa.RecordBatch, part: PartFile, start: int, limit: int | None) -> int:
    return part.write_columns(batch, start, limit)


class FileWriter(TwoPhaseWriter[Any]):
    """Writes the part files of one subtask.

    With checkpoints, parts of rows continue after a barrier (unless their rolling policy says otherwise): what was
    written is synced, and the checkpoint holds its length. Parts of bulk formats end at each barrier.

    Args:
        base_path: base path of the sink, on any file system.
        file_format: writes records.
        buckets: chooses the folder of a record.
        rolling: decides when a part is full.
        files: names of parts.
        check_interval_ms: time between two looks at the age of all parts.
        context: context of the subtask.
        clock: clock for ages and buckets.
    """

    def __init__(
        self,
        base_path: str | Path,
        file_format: Encoder | BulkWriterFactory,
        buckets: BucketAssigner,
        rolling: RollingPolicy,
        files: OutputFileConfig,
        check_interval_ms: int,
        context: WriterContext,
        clock: Clock,
    ) -> None:
        self._format, self._make_part = file_format, part_maker(file_format)
        self._buckets, self._rolling, self._files = buckets, rolling, files
        self._context, self._clock = context, clock
        self._check_ms = check_interval_ms
        self._checked = clock.monotonic()
        self._id = uuid.uuid4()
        self._count = 0
        self._open: dict[str, PartFile] = {}
        self._closed: list[PartFile] = []
        self.takes_columns = file_format.takes_columns
        self._handed_over: list[PartFile] = []
        """Parts that the committer got at the end of a job without checkpoints; ``abort`` removes them."""
        self._ready: list[bytes] = []
        """Committables of parts that were finished when they were recovered."""
        self._restored: list[WriterState] = []
        self._base_path, self._systems = str(base_path), FileSystems(context.settings)
        system = self._systems.of(self._base_path)
        self.blocking = system.remote  # writing may wait for a network
        self._output = system.writer(self._base_path, context)

    def open(self) -> None:
        """Go on with the parts of the checkpoint, and remove parts of former attempts that no checkpoint holds.

        A timer looks at the age of parts from then on, also if no records come.
        """
        now = self._clock.monotonic()
        self._output.remove_orphans()
        for restored in self._restored:
            state, persisted = _restored(restored.data)
            if isinstance(self._format, BulkWriterFactory):  # its files have an end, and can't be continued
                raise StateRestoreError(
                    "file sink: the checkpoint has an open part of rows, "
                    f"{persisted.plain.get('hidden') or persisted.plain.get('uri')}, and the sink writes a bulk format "
                    f"now ({type(self._format).__name__}), which can't go on with it: start with the format of the "
                    "checkpoint, or give the sink another uid"
                )
            output = self._output
            path = str(state.get("uri") or state["visible"])
            if scheme_of(path) != scheme_of(self._base_path):  # the sink has another base path now
                output = self._systems.of(path).writer(path.rpartition("/")[0], self._context)
            recovered = output.recover(state["bucket"], self._new_name, persisted)
            if recovered.committable is not None:
                self._ready.append(_json(recovered.committable))
            if recovered.output is not None:
                self._take(state["bucket"], self._make_part(recovered.output, now))
        self._restored = []
        self._set_timer()

    def _take(self, bucket: str, part: PartFile) -> None:
        """Go on with a part; if the bucket has one already, finish this one."""
        if bucket in self._open:
            part.close(self._context.make_durable)
            self._closed.append(part)
        else:
            self._open[bucket] = part

    def _set_timer(self) -> None:
        self._context.register_timer(self._clock.epoch_ms() + self._check_ms, self._time_passed)

    def _time_passed(self) -> None:
        now = self._checked = self._clock.monotonic()
        self._close_full(now)
        self._set_timer()

    def restore_state(self, states: Sequence[WriterState]) -> None:
        """Take the parts that were open at the checkpoint.

        Raises:
            CheckpointVersionError: a later release wrote the state.
        """
        for state in states:
            if state.version != 1:
                raise CheckpointVersionError(
                    "file sink", f"state of version {state.version} was written by a later release: go on with that one"
                )
        self._restored = list(states)

    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        """Append the records to the parts of their buckets."""
        bucket_of, now_ms = self._buckets.bucket_of, self._clock.epoch_ms()
        buckets: dict[str, list[Any]] = {}
        for value in values:
            buckets.setdefault(bucket_of(value, now_ms), []).append(value)
        now = self._look()
        for bucket, records in buckets.items():
            self._append(bucket, len(records), partial(_write_rows, records), now)

    def write_columns(self, batch: pa.RecordBatch, timestamps: Any) -> None:
        """Append rows to the parts of their buckets; rows become records only if buckets depend on them."""
        bucket_of, now_ms = self._buckets.bucket_of, self._clock.epoch_ms()
        parts: dict[str, pa.RecordBatch] = {}
        if self._buckets.looks_at_records:
            rows = self._buckets.rows_of_buckets(batch, now_ms)
            if rows is None:
                rows = {}
                for number, value in enumerate(records_of(batch)):
                    rows.setdefault(bucket_of(value, now_ms), []).append(number)
            parts = {bucket: batch.take(pa.array(numbers)) for bucket, numbers in rows.items()}
        elif batch.num_rows:
            parts = {bucket_of(None, now_ms): batch}
        now = self._look()
        for bucket, part in parts.items():
            self._append(bucket, part.num_rows, partial(_write_columns, part), now)

    def _look(self) -> float:
        """The current time; closes old parts when the check interval is over."""
        now = self._clock.monotonic()
        if now - self._checked >= self._check_ms / 1000:
            self._checked = now
            self._close_full(now)
        return now

    def _close_full(self, now: float) -> None:
        """Close parts that are full, so that buckets without records do not keep files open."""
        for bucket in [bucket for bucket, part in self._open.items() if self._is_full(part, now)]:
            self._close_part(bucket)

    def _is_full(self, part: PartFile, now: float) -> bool:
        return self._rolling.is_full(part.size, (now - part.begun) * 1000, (now - part.written) * 1000)

    def _append(self, bucket: str, count: int, write: Callable[[PartFile, int, int | None], int], now: float) -> None:
        part = self._open.get(bucket)
        start = 0
        while start < count:
            if part is not None and self._is_full(part, now):
                self._close_part(bucket)
                part = None
            if part is None:
                part = self._open[bucket] = self._new_part(bucket, now)
            start = write(part, start, self._rolling.part_size)
            part.written = now

    def _new_part(self, bucket: str, now: float) -> PartFile:
        output = self._output.begin(bucket, self._new_name())
        try:
            return self._make_part(output, now)
        except BaseException:
            output.abort()
            raise

    def _new_name(self) -> str:
        name = f"{self._files.prefix}-{self._id}-{self._count}{self._files.suffix}"
        self._count += 1
        return name

    def _close_part(self, bucket: str) -> None:
        part = self._open[bucket]
        part.close(self._context.make_durable)
        del self._open[bucket]
        self._closed.append(part)

    # -- checkpoints

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        """Close parts that become visible, and have them synced."""
        now = self._clock.monotonic()
        for bucket, part in list(self._open.items()):
            if end_of_input or self._rolling.at_checkpoints or not part.resumable or self._is_full(part, now):
                self._close_part(bucket)
        self._output.prepare(self._context.make_durable)
        committables_of_parts = [part.output.committable() for part in self._closed]
        committables = self._ready + [_json(plain) for plain in committables_of_parts if plain is not None]
        closed, self._closed, self._ready = self._closed, [], []
        if self._context.checkpointing or not end_of_input:
            for part in closed:  # the checkpoint holds them, so an attempt that restores it commits them
                part.output.keep()
        else:
            self._handed_over += closed
        return committables

    def snapshot_state(self) -> Sequence[bytes]:
        """State of the parts that go on after the barrier."""
        for part in self._handed_over:
            part.output.keep()
        self._handed_over.clear()
        states = []
        for bucket, part in self._open.items():
            persisted = part.persist(self._context.make_durable)
            part.output.keep()
            states.append(_state(bucket, persisted))
        return states

    def abort(self) -> None:
        """Remove all parts that are neither visible nor in a checkpoint."""
        parts = [*self._open.values(), *self._closed, *self._handed_over]
        self._open.clear()
        self._closed.clear()
        self._handed_over.clear()
        for part in parts:
            if part.output.kept:
                part.discard()
            else:
                part.abort()

    def close(self) -> None:
        """Close open files, which stay hidden."""
        for part in self._open.values():
            part.discard()


def _state(bucket: str, persisted: Persisted) -> bytes:
    """A line of JSON, and behind it the bytes that the file system does not have yet."""
    head = _json({"bucket": bucket, **persisted.plain})
    return head + b"\n" + persisted.tail if persisted.tail else head


def _restored(data: bytes) -> tuple[dict[str, Any], Persisted]:
    head, _, tail = data.partition(b"\n")
    state: dict[str, Any] = json.loads(head)
    return state, Persisted(state, tail)


def _json(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()
