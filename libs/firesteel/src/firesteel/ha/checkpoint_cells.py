"""The completed checkpoints of a job in the cell of its component.

Records::

    counter             id of the last checkpoint
    checkpoint.<id>     a completed checkpoint: the place of its metadata
    writer.<epoch>.<n>  an object that writes; ``over`` once a successor has replaced it (``renewed``)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from typing_extensions import override

from firesteel.checkpoint.reading import CheckpointFormatError
from firesteel.checkpoint.store import CompletedCheckpointStore, StoredCheckpoint
from firesteel.core.errors import CheckpointStorageError
from firesteel.ha.cells import Cells, Change, Record, RemoveRecord, Unchanged, put, settle
from firesteel.ha.documents import DamagedEntryError, UnknownFormatError, decode, encode
from firesteel.ha.job_cells import check_payloads
from firesteel.ha.payloads import Payloads

_KIND: Final = "checkpoint"
_COUNTER, _WRITER, _OVER = "counter", "writer", b"over"


class CellCheckpointStore(CompletedCheckpointStore):
    """The completed checkpoints of a job in its cell; the head of this module lists the records.

    Args:
        cells: of the cluster.
        payloads: for large metadata.
        component: of the job.
        epoch: of the JobMaster that leads it.
        folder: prefix of the names of the job's payloads.
    """

    def __init__(self, cells: Cells, payloads: Payloads, component: str, epoch: int, folder: str) -> None:
        self._cells, self._payloads, self._component, self._epoch = cells, payloads, component, epoch
        self._folder = folder
        self._damaged: tuple[str, ...] = ()
        self._own = f"{_WRITER}.{epoch}.{secrets.token_hex(8)}"

    @override
    def renewed(self) -> CompletedCheckpointStore:
        successor = CellCheckpointStore(self._cells, self._payloads, self._component, self._epoch, self._folder)

        # From this change on, changes of this object that are still on their way are refused.
        def plan() -> list[Change] | None:
            record = self._cells.read(self._component, self._own)
            return None if record is not None and record.value == _OVER else [put(self._own, _OVER, record)]

        self._settle("what earlier calls have begun can't be ended", plan)
        return successor

    @override
    def next_id(self, above: int = 0) -> int:
        number = 0

        def plan() -> list[Change]:
            nonlocal number
            record = self._cells.read(self._component, _COUNTER)
            try:
                last = 0 if record is None else int(record.value)
            except ValueError as error:
                raise CheckpointStorageError(
                    f"the counter of checkpoints is damaged: {record!r}. Write the number of the job's last checkpoint "
                    f"into it: the record {_COUNTER} of {self._component}"
                ) from error
            number = max(last, above) + 1
            return [*self._as_writer(), put(_COUNTER, str(number).encode(), record)]

        self._settle("the counter of checkpoints can't be written", plan)
        return number

    @override
    def add(self, checkpoint: StoredCheckpoint) -> None:
        name, payload = f"{_KIND}.{checkpoint.checkpoint_id}", ""
        failure = f"checkpoint {checkpoint.checkpoint_id} can't be stored"
        # The payload is written before its record, and counts only through it.
        if checkpoint.metadata is not None and len(checkpoint.metadata) > self._cells.largest_record:
            payload = f"{self._folder}/{checkpoint.checkpoint_id}.{self._epoch}.{secrets.token_hex(8)}"

        def plan() -> list[Change] | None:
            record = self._cells.read(self._component, name)
            writer = self._as_writer()
            if record is None:
                return [*writer, put(name, self._encoded(checkpoint, payload), None)]
            if self._decoded(record) != checkpoint:
                raise CheckpointStorageError(f"another checkpoint {checkpoint.checkpoint_id} is in the store already")
            return None

        try:
            if payload:
                check_payloads(self._cells, self._payloads)
                self._payloads.write(payload, (checkpoint.metadata or "").encode())
        except OSError as error:
            raise CheckpointStorageError(f"{failure}: {error.strerror or error}") from error
        self._settle(failure, plan)

    @override
    def remove(self, checkpoint_id: int) -> None:
        self._remove([f"{_KIND}.{checkpoint_id}"], f"checkpoint {checkpoint_id} can't be removed")

    @override
    def clear(self) -> None:
        failure = "the checkpoints can't be removed"
        try:
            names = [name for name in self._cells.names(self._component) if name.startswith(f"{_KIND}.")]
        except OSError as error:
            raise CheckpointStorageError(f"{failure}: {error.strerror or error}") from error
        self._remove([*names, _COUNTER], failure)

    def _remove(self, names: Sequence[str], failure: str) -> None:
        payloads: set[str] = set()

        def plan() -> list[Change]:
            records = [(name, self._cells.read(self._component, name)) for name in names]
            for name, record in records:
                if record is not None and name != _COUNTER and (payload := _payload_of(record)):
                    payloads.add(payload)
            removals = [RemoveRecord(name, record.version) for name, record in records if record is not None]
            return [*self._as_writer(), *removals]

        self._settle(failure, plan)
        try:
            for payload in sorted(payloads):
                self._payloads.remove(payload)
        except OSError as error:
            raise CheckpointStorageError(f"{failure}: {error.strerror or error}") from error

    @override
    def all(self) -> list[StoredCheckpoint]:
        checkpoints: dict[int, StoredCheckpoint] = {}
        damaged = []
        try:
            for name in self._cells.names(self._component):
                record = self._cells.read(self._component, name) if name.startswith(f"{_KIND}.") else None
                if record is None:
                    continue
                try:
                    read = self._decoded(record)
                except (DamagedEntryError, CheckpointFormatError, FileNotFoundError, ValueError) as error:
                    if isinstance(error, FileNotFoundError):
                        check_payloads(self._cells, self._payloads)
                    damaged.append(f"{name}: {error}")
                    continue
                if f"{_KIND}.{read.checkpoint_id}" == name:
                    checkpoints[read.checkpoint_id] = read
                else:
                    damaged.append(f"{name}: an entry of another checkpoint")
        except UnknownFormatError as error:
            raise CheckpointStorageError(f"another version of Firesteel has stored the checkpoints: {error}") from error
        except OSError as error:
            raise CheckpointStorageError(f"the checkpoints can't be read: {error.strerror or error}") from error
        self._damaged = tuple(damaged)
        return [checkpoints[checkpoint_id] for checkpoint_id in sorted(checkpoints)]

    @property
    @override
    def damaged(self) -> tuple[str, ...]:
        return self._damaged

    # -- inside

    def _encoded(self, checkpoint: StoredCheckpoint, payload: str) -> bytes:
        in_record = replace(checkpoint, metadata=None) if payload else checkpoint
        return encode(_KIND, {**in_record.to_plain(), "payload": payload})

    def _decoded(self, record: Record) -> StoredCheckpoint:
        plain = decode(_KIND, record.value)
        checkpoint = StoredCheckpoint.from_plain(plain)
        payload = str(plain.get("payload") or "")
        return replace(checkpoint, metadata=self._payloads.read(payload).decode()) if payload else checkpoint

    def _as_writer(self) -> list[Change]:
        """Condition that makes a change one of this object, unless it was renewed: its own record is unchanged.

        Raises:
            FencedError: another JobMaster leads.
            CheckpointStorageError: a successor has replaced this object.
        """
        own_record = self._cells.read(self._component, self._own)
        if own_record is None:
            return [put(self._own, b"", None), *self._of_former_leaders()]
        if own_record.value == _OVER:
            self._cells.check(self._component, self._epoch)
            raise CheckpointStorageError("this call was given up, and its successor writes the checkpoints now")
        return [Unchanged(self._own, own_record.version)]

    def _of_former_leaders(self) -> list[Change]:
        """Removals of the records that writers of former leaders have left."""
        removals: list[Change] = []
        for name in self._cells.names(self._component):
            kind, _, writer = name.partition(".")
            epoch = writer.partition(".")[0]
            if kind == _WRITER and epoch.isdigit() and int(epoch) < self._epoch:
                record = self._cells.read(self._component, name)
                if record is not None:
                    removals.append(RemoveRecord(name, record.version))
        return removals

    def _settle(self, failure: str, plan: Callable[[], Sequence[Change] | None]) -> None:
        try:
            settle(self._cells, self._component, self._epoch, plan)
        except OSError as error:
            raise CheckpointStorageError(f"{failure}: {error.strerror or error}") from error


def _payload_of(record: Record) -> str:
    try:
        return str(decode(_KIND, record.value).get("payload") or "")
    except (DamagedEntryError, json.JSONDecodeError):
        return ""
