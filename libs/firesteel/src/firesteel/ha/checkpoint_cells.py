"""The completed checkpoints of a job in the cell of its component.

Records::

    counter             id of the last checkpoint
    checkpoint.<id>     a completed checkpoint: where its metadata are
    writer.<epoch>.<n>  an object that writes; ``over`` where another one has followed it (``renewed``)
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
    """See ``CompletedCheckpointStore`` and the head of this module.

    Args:
        cells: where records are.
        payloads: where large metadata are.
        component: whose cell it is: that of the job.
        epoch: of the JobMaster that leads it.
        folder: begin of the names of the job's payloads.
    """

    def __init__(self, cells: Cells, payloads: Payloads, component: str, epoch: int, folder: str) -> None:
        self._cells, self._payloads, self._component, self._epoch = cells, payloads, component, epoch
        self._folder = folder
        self._damaged: tuple[str, ...] = ()
        self._own = f"{_WRITER}.{epoch}.{secrets.token_hex(8)}"

    @override
    def renewed(self) -> CompletedCheckpointStore:
        new = CellCheckpointStore(self._cells, self._payloads, self._component, self._epoch, self._folder)

        def plan() -> list[Change] | None:
            there = self._cells.read(self._component, self._own)
            return None if there is not None and there.value == _OVER else [put(self._own, _OVER, there)]

        self._settle("what earlier calls have begun can't be ended", plan)
        return new

    @override
    def next_id(self, above: int = 0) -> int:
        number = 0

        def plan() -> list[Change]:
            nonlocal number
            there = self._cells.read(self._component, _COUNTER)
            try:
                last = 0 if there is None else int(there.value)
            except ValueError as error:
                raise CheckpointStorageError(
                    f"the counter of checkpoints is damaged: {there!r}. Write the number of the job's last checkpoint "
                    f"into it: the record {_COUNTER} of {self._component}"
                ) from error
            number = max(last, above) + 1
            return [*self._as_writer(), put(_COUNTER, str(number).encode(), there)]

        self._settle("the counter of checkpoints can't be written", plan)
        return number

    @override
    def add(self, checkpoint: StoredCheckpoint) -> None:
        name, payload = f"{_KIND}.{checkpoint.checkpoint_id}", ""
        what = f"checkpoint {checkpoint.checkpoint_id} can't be stored"
        if checkpoint.metadata is not None and len(checkpoint.metadata) > self._cells.largest_record:
            payload = f"{self._folder}/{checkpoint.checkpoint_id}.{self._epoch}.{secrets.token_hex(8)}"

        def plan() -> list[Change] | None:
            there = self._cells.read(self._component, name)
            writer = self._as_writer()
            if there is None:
                return [*writer, put(name, self._encoded(checkpoint, payload), None)]
            if self._decoded(there) != checkpoint:
                raise CheckpointStorageError(f"another checkpoint {checkpoint.checkpoint_id} is in the store already")
            return None

        try:
            if payload:
                check_payloads(self._cells, self._payloads)
                self._payloads.write(payload, (checkpoint.metadata or "").encode())
        except OSError as error:
            raise CheckpointStorageError(f"{what}: {error.strerror or error}") from error
        self._settle(what, plan)

    @override
    def remove(self, checkpoint_id: int) -> None:
        self._remove([f"{_KIND}.{checkpoint_id}"], f"checkpoint {checkpoint_id} can't be removed")

    @override
    def clear(self) -> None:
        what = "the checkpoints can't be removed"
        try:
            names = [name for name in self._cells.names(self._component) if name.startswith(f"{_KIND}.")]
        except OSError as error:
            raise CheckpointStorageError(f"{what}: {error.strerror or error}") from error
        self._remove([*names, _COUNTER], what)

    def _remove(self, names: Sequence[str], what: str) -> None:
        payloads: set[str] = set()

        def plan() -> list[Change]:
            found = [(name, self._cells.read(self._component, name)) for name in names]
            for name, there in found:
                if there is not None and name != _COUNTER and (payload := _payload_of(there)):
                    payloads.add(payload)
            gone = [RemoveRecord(name, there.version) for name, there in found if there is not None]
            return [*self._as_writer(), *gone]

        self._settle(what, plan)
        try:
            for payload in sorted(payloads):
                self._payloads.remove(payload)
        except OSError as error:
            raise CheckpointStorageError(f"{what}: {error.strerror or error}") from error

    @override
    def all(self) -> list[StoredCheckpoint]:
        found: dict[int, StoredCheckpoint] = {}
        damaged = []
        try:
            for name in self._cells.names(self._component):
                there = self._cells.read(self._component, name) if name.startswith(f"{_KIND}.") else None
                if there is None:
                    continue
                try:
                    read = self._decoded(there)
                except (DamagedEntryError, CheckpointFormatError, FileNotFoundError, ValueError) as error:
                    if isinstance(error, FileNotFoundError):
                        check_payloads(self._cells, self._payloads)
                    damaged.append(f"{name}: {error}")
                    continue
                if f"{_KIND}.{read.checkpoint_id}" == name:
                    found[read.checkpoint_id] = read
                else:
                    damaged.append(f"{name}: an entry of another checkpoint")
        except UnknownFormatError as error:
            raise CheckpointStorageError(f"another version of Firesteel has stored the checkpoints: {error}") from error
        except OSError as error:
            raise CheckpointStorageError(f"the checkpoints can't be read: {error.strerror or error}") from error
        self._damaged = tuple(damaged)
        return [found[checkpoint_id] for checkpoint_id in sorted(found)]

    @property
    @override
    def damaged(self) -> tuple[str, ...]:
        return self._damaged

    # -- inside

    def _encoded(self, checkpoint: StoredCheckpoint, payload: str) -> bytes:
        kept = replace(checkpoint, metadata=None) if payload else checkpoint
        return encode(_KIND, {**kept.to_plain(), "payload": payload})

    def _decoded(self, record: Record) -> StoredCheckpoint:
        plain = decode(_KIND, record.value)
        checkpoint = StoredCheckpoint.from_plain(plain)
        payload = str(plain.get("payload") or "")
        return replace(checkpoint, metadata=self._payloads.read(payload).decode()) if payload else checkpoint

    def _as_writer(self) -> list[Change]:
        """What makes a change one of this object, which has not been renewed: a record of its own that is as it was.

        Raises:
            FencedError: another JobMaster leads.
            CheckpointStorageError: another object has followed.
        """
        there = self._cells.read(self._component, self._own)
        if there is None:
            return [put(self._own, b"", None), *self._of_former_leaders()]
        if there.value == _OVER:
            self._cells.check(self._component, self._epoch)
            raise CheckpointStorageError("the call was given up, and another object has followed")
        return [Unchanged(self._own, there.version)]

    def _of_former_leaders(self) -> list[Change]:
        """Nobody needs their records of this kind any more."""
        gone: list[Change] = []
        for name in self._cells.names(self._component):
            kind, _, rest = name.partition(".")
            epoch = rest.partition(".")[0]
            if kind == _WRITER and epoch.isdigit() and int(epoch) < self._epoch:
                there = self._cells.read(self._component, name)
                if there is not None:
                    gone.append(RemoveRecord(name, there.version))
        return gone

    def _settle(self, what: str, plan: Callable[[], Sequence[Change] | None]) -> None:
        try:
            settle(self._cells, self._component, self._epoch, plan)
        except OSError as error:
            raise CheckpointStorageError(f"{what}: {error.strerror or error}") from error


def _payload_of(record: Record) -> str:
    try:
        return str(decode(_KIND, record.value).get("payload") or "")
    except (DamagedEntryError, json.JSONDecodeError):
        return ""
