"""Restores the operators of a task: reads their state from the checkpoint storage and hands it to them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from socket import gethostname
from typing import Any, BinaryIO, Final, NamedTuple

from firesteel.checkpoint.assign import OperatorRestore, TaskRestore
from firesteel.checkpoint.chunks import read_chunks
from firesteel.checkpoint.handles import FileState, InlineState, RunningChecksum, StateHandle, checksum
from firesteel.checkpoint.subtask_state import KeyedState, OperatorListState
from firesteel.core.errors import (
    CheckpointCorruptedError,
    CheckpointStorageError,
    CheckpointVersionError,
    ProgramError,
    StateAwayError,
    StateRestoreError,
)
from firesteel.functions.two_phase import Committable
from firesteel.runtime.checkpoints.in_flight import InFlightReader, Replayed
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.restored import OperatorRestored
from firesteel.state.operator_state import OperatorSnapshot
from firesteel.state.snapshots import SEVERAL, StateChunk, StateInfo, WrittenState

_COPY_BYTES: Final = 1 << 20
"""Bytes of a file that are read at a time."""
OpenState = Callable[[StateHandle], BinaryIO]
"""Opens a piece of state for reading; the stream is seekable. Raises ``CheckpointError``."""


def open_inline(handle: StateHandle) -> BinaryIO:
    """Open state that is contained in its handle.

    Raises:
        CheckpointStorageError: it is in a file.
    """
    if isinstance(handle, InlineState):
        return io.BytesIO(handle.data)
    assert isinstance(handle, FileState)
    raise CheckpointStorageError(f"{handle.path}: there is no checkpoint storage to read state from")


def restore_operators(
    restore: TaskRestore,
    operators: Sequence[Operator],
    info: TaskInfo,
    open_state: OpenState,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Hand each operator its state; called before any is opened.

    Args:
        restore: state assigned to the task.
        operators: operators of its chain.
        info: description of the task.
        open_state: opens state of the checkpoint.
        check: called before each chunk; an exception of it ends the restore.

    Raises:
        StateRestoreError: state does not fit its operator; the message names the operator.
        StateMigrationError: a state is of another type now.
        CheckpointError: state can't be read.
    """
    storage = _Storage(open_state, check)
    for operator in operators:
        written = restore.operators.get(operator.spec.id, OperatorRestore())
        groups = operator.key_groups
        restored = OperatorRestored(
            restore.checkpoint_id,
            info.subtask,
            info.parallelism,
            {name: [_StateInStorage(part, groups, storage) for part in parts] for name, parts in written.keyed.items()},
            [_operator_snapshot(part, storage) for part in written.operator],
            written.splits,
            [
                Committable(_bytes(item, storage), prepared.version, prepared.checkpoint_id)
                for prepared in written.committables
                for item in prepared.items
            ],
            written.keys,
            written.alone,
        )
        try:
            operator.restore(restored)
        except ProgramError as error:
            if operator.name in str(error):
                raise
            raise StateRestoreError(
                f"operator {operator.name!r} can't go on from checkpoint {restore.checkpoint_id}: {error}"
            ) from error


def restore_task(
    restore: TaskRestore,
    operators: Sequence[Operator],
    info: TaskInfo,
    open_state: OpenState,
    check: Callable[[], None],
) -> list[Replayed]:
    """Hand each operator its state; returns what the task is to replay. As ``restore_operators``.

    Raises:
        StateAwayError: this host can't read the state.
    """
    try:
        restore_operators(restore, operators, info, open_state, check)
        head = operators[0].spec
        written = restore.operators.get(head.id)
        if written is None or not written.in_flight:
            return []
        return list(InFlightReader(head, info, open_state, check).read(written.in_flight))
    except CheckpointVersionError:
        raise
    except CheckpointStorageError as error:  # trouble of the storage, which the job waits for; not its own failure
        raise StateAwayError(f"the state of {info.full_name} can't be read on {gethostname()}: {error}") from error


class _Storage(NamedTuple):
    """How state of the checkpoint is read, and what is called before each chunk of it, for cancellations."""

    open_state: OpenState
    check: Callable[[], None]


def _infos(states: Iterable[Mapping[str, Any]]) -> list[StateInfo]:
    return [StateInfo.from_json(dict(state)) for state in states]


class _StateInStorage(WrittenState):
    """A part of an operator's state in the checkpoint storage, as state backends read it."""

    def __init__(self, part: KeyedState, groups: range, storage: _Storage) -> None:
        first, last = part.key_groups
        self.states, self.key_groups = _infos(part.states), range(first, last + 1)
        self.files = {name: handle.size for name, handle in part.files.items()}
        self._part, self._groups, self._storage = part, groups, storage

    def chunks(self) -> Iterator[StateChunk]:
        groups, written_groups = self._groups, self.key_groups
        chunks = _chunks(self._part.handles, groups, self._storage)
        if written_groups.start < groups.start or written_groups.stop > groups.stop:
            return chunks
        # All key groups of the part belong to this subtask. Then nobody has to look at the keys in chunks of several
        # groups, which naming any group of this subtask achieves.
        return (replace(chunk, key_group=groups.start) if chunk.key_group == SEVERAL else chunk for chunk in chunks)

    def fetch(self, name: str, path: str) -> None:
        handle = self._part.files[name]
        running, length = RunningChecksum(), 0
        with self._storage.open_state(handle) as stream, open(path, "xb") as copy:
            while data := stream.read(_COPY_BYTES):
                self._storage.check()
                running.update(data)
                length += len(data)
                copy.write(data)
        expected = checksum(handle.data) if isinstance(handle, InlineState) else handle.checksum
        if length != handle.size or running.hexdigest() != expected:
            where = handle.path if isinstance(handle, FileState) else "state in the checkpoint's metadata"
            raise CheckpointCorruptedError(where, f"file {name!r} is not what was written: its checksum is wrong")


def _operator_snapshot(part: OperatorListState, storage: _Storage) -> OperatorSnapshot:
    return OperatorSnapshot(_infos(part.states), list(_chunks(part.handles, None, storage)))


def _chunks(handles: Iterable[StateHandle], groups: range | None, storage: _Storage) -> Iterator[StateChunk]:
    open_state, check = storage
    for handle in handles:
        where = handle.path if isinstance(handle, FileState) else "state in the checkpoint's metadata"
        check()
        with open_state(handle) as stream:
            for chunk in read_chunks(stream, where, groups):
                check()
                yield StateChunk(*chunk)


def _bytes(handle: StateHandle, storage: _Storage) -> bytes:
    storage.check()
    with storage.open_state(handle) as stream:
        return stream.read()
