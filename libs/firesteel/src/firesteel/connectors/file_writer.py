"""The writer of a file sink: where records go, and when a part is full."""

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
    """Part files of one subtask.

    With checkpoints, parts of rows go on over barriers (unless their rolling policy says otherwise): what was written
    is synced, and its length is in the checkpoint. Parts of bulk formats end at each barrier.

    Args:
        base_path: of the sink, on any file system.
        file_format: how records are written.
        buckets: which folder a record goes to.
        rolling: when a part is full.
        files: names of parts.
        check_interval_ms: how often all parts are looked at for their age.
        context: of the subtask.
        clock: for ages and buckets.
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
        self._given: list[PartFile] = []
        """Committables speak of them."""
        self._ready: list[bytes] = []
        """Committables of what was finished by going on from a checkpoint."""
        self._restored: list[WriterState] = []
        self._base_path, self._systems = str(base_path), FileSystems(context.settings)
        system = self._systems.of(self._base_path)
        self.blocking = system.remote  # writing may wait for a network
        self._output = system.writer(self._base_path, context)

    def open(self) -> None:
        """Go on with the parts of the checkpoint, and remove those of former attempts that are in none.

        From then on the age of parts is looked at from time to time, also when no records come.
        """
        now = self._clock.monotonic()
        self._output.remove_orphans()
        for restored in self._restored:
            state, persisted = _restored(restored.data)
            if isinstance(self._format, BulkWriterFactory):  # its files have an end, behind which nothing is written
                raise StateRestoreError(
                    "file sink: the checkpoint has an open part of rows, "
                    f"{persisted.plain.get('hidden') or persisted.plain.get('uri')}, and the sink writes a bulk format "
                    f"now ({type(self._format).__name__}), which can't go on with it: start with the format of the "
                    "checkpoint, or give the sink another uid"
                )
            output = self._output
            where = str(state.get("uri") or state["visible"])
            if scheme_of(where) != scheme_of(self._base_path):  # of a sink that wrote elsewhere
                output = self._systems.of(where).writer(where.rpartition("/")[0], self._context)
            recovered = output.recover(state["bucket"], self._new_name, persisted)
            if recovered.committable is not None:
                self._ready.append(_json(recovered.committable))
            if recovered.output is not None:
                self._take(state["bucket"], self._make_part(recovered.output, now))
        self._restored = []
        self._set_timer()

    def _take(self, bucket: str, part: PartFile) -> None:
        """Go on with a part; of two in one bucket one is finished."""
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
        """Parts that were open at the checkpoint.

        Raises:
            CheckpointVersionError: their version is not known.
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
        """Append the rows to the parts of their buckets; they become records only for buckets that look at them."""
        bucket_of, now_ms = self._buckets.bucket_of, self._clock.epoch_ms()
        parts: dict[str, pa.RecordBatch] = {}
        if self._buckets.looks_at_records:
            rows: dict[str, list[int]] = {}
            for number, value in enumerate(records_of(batch)):
                rows.setdefault(bucket_of(value, now_ms), []).append(number)
            parts = {bucket: batch.take(pa.array(numbers)) for bucket, numbers in rows.items()}
        elif batch.num_rows:
            parts = {bucket_of(None, now_ms): batch}
        now = self._look()
        for bucket, part in parts.items():
            self._append(bucket, part.num_rows, partial(_write_columns, part), now)

    def _look(self) -> float:
        """The time; the age of all parts is looked at when the interval is over."""
        now = self._clock.monotonic()
        if now - self._checked >= self._check_ms / 1000:
            self._checked = now
            self._close_full(now)
        return now

    def _close_full(self, now: float) -> None:
        """Buckets that get no more records must not keep their files open."""
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
        """Close the parts that are to be shown, and have them synced."""
        now = self._clock.monotonic()
        for bucket, part in list(self._open.items()):
            if end_of_input or self._rolling.at_checkpoints or not part.resumable or self._is_full(part, now):
                self._close_part(bucket)
        self._output.prepare(self._context.make_durable)
        shown = [part.output.committable() for part in self._closed]
        committables = self._ready + [_json(plain) for plain in shown if plain is not None]
        closed, self._closed, self._ready = self._closed, [], []
        if self._context.checkpointing or not end_of_input:
            for part in closed:  # the checkpoint speaks of them: whoever goes on from it shows them
                part.output.keep()
        else:
            self._given += closed
        return committables

    def snapshot_state(self) -> Sequence[bytes]:
        """The parts that go on."""
        for part in self._given:
            part.output.keep()
        self._given.clear()
        states = []
        for bucket, part in self._open.items():
            persisted = part.persist(self._context.make_durable)
            part.output.keep()
            states.append(_state(bucket, persisted))
        return states

    def abort(self) -> None:
        """Remove all parts that are neither visible nor in a checkpoint."""
        parts = [*self._open.values(), *self._closed, *self._given]
        self._open.clear()
        self._closed.clear()
        self._given.clear()
        for part in parts:
            if part.output.kept:
                part.discard()
            else:
                part.abort()

    def close(self) -> None:
        """Close the files that are still open; they stay hidden."""
        for part in self._open.values():
            part.discard()


def _state(bucket: str, persisted: Persisted) -> bytes:
    """A line of JSON; behind it bytes that the file system has not, if there are some."""
    head = _json({"bucket": bucket, **persisted.plain})
    return head + b"\n" + persisted.tail if persisted.tail else head


def _restored(data: bytes) -> tuple[dict[str, Any], Persisted]:
    head, _, tail = data.partition(b"\n")
    state: dict[str, Any] = json.loads(head)
    return state, Persisted(state, tail)


def _json(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()
