"""A snapshot of all operators of a task: begun between two records, written out in slices while records flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.subtask_state import (
    Committables,
    KeyedState,
    KeyKinds,
    OperatorListState,
    OperatorSubtaskState,
    TaskState,
)
from firesteel.functions.two_phase import Committable
from firesteel.runtime.checkpoints.aligner import Arrived
from firesteel.runtime.checkpoints.bases import Bases, WrittenPart
from firesteel.runtime.checkpoints.in_flight import InFlightLog
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.checkpoints.uploads import Upload
from firesteel.runtime.operator_base.base import KeyedPart, Operator
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.state.snapshots import KeyedSnapshot, Purpose


class _PartSnapshot(NamedTuple):
    """A part of an operator on its way out; its index in the list is its number in the upload."""

    operator: Operator
    name: str | None
    """None: operator state."""
    snapshot: KeyedSnapshot
    key_groups: tuple[int, int]
    base: WrittenPart = WrittenPart()
    """What the checkpoint has that this one builds on."""

    @property
    def reused(self) -> tuple[StateHandle, ...]:
        """Streams of chunks that earlier checkpoints have written."""
        return self.base.handles if self.snapshot.base is not None else ()


class TaskSnapshot:
    """See the module.

    Args:
        arrived: the barrier.
        operators: of the chain, head first.
        upload: gets the chunks.
        source: of a source task.
        finished: the input has ended: no record will come behind the barrier.
        bases: what earlier checkpoints have; None = this one builds on none, and none will build on it.

    Attributes:
        last: no record comes behind it.
        half_written: an operator failed in ``begin`` that had begun to write to somewhere else.
    """

    half_written = False
    log: InFlightLog | None = None
    """Of what the barrier has overtaken."""

    def __init__(
        self,
        arrived: Arrived,
        operators: Sequence[Operator],
        upload: Upload,
        source: SourcePosition | None,
        *,
        finished: bool,
        bases: Bases | None = None,
    ) -> None:
        self._bases = bases
        self.arrived, self.upload, self.last = arrived, upload, finished
        self.checkpoint_id = arrived.barrier.checkpoint_id
        self._operators, self._source = operators, source
        self._parts: list[_PartSnapshot] = []
        self._position = 0
        self._committables: dict[str, tuple[tuple[int, tuple[Committable, ...]], ...]] = {}
        self._keys: dict[str, KeyKinds | None] = {}

    def begin(self) -> None:
        """The synchronous part; user code runs in here, and what it raises comes out."""
        for operator in self._operators:
            operator.check_fit_for_checkpoints()
        context = SnapshotContext(self.checkpoint_id, self.arrived.barrier.timestamp)
        for operator in self._operators:
            try:
                operator.snapshot_state(context)
            except BaseException:
                self.half_written = operator.writes_elsewhere
                raise
        for operator in self._operators:
            uncommitted = operator.uncommitted()
            if uncommitted is not None:
                self._committables[operator.spec.id] = uncommitted
            self._keys[operator.spec.id] = operator.key_kinds()
            for name, part in operator.snapshot_parts().items():
                self._parts.append(self._begin(operator, name, part))
            self._parts.append(_PartSnapshot(operator, None, operator.operator_state.snapshot(), (0, 0)))

    def _begin(self, operator: Operator, name: str, part: KeyedPart) -> _PartSnapshot:
        groups = operator.key_groups[0], operator.key_groups[-1]
        if self._bases is None:
            options = self.arrived.barrier.options
            canonical = savepoints.OPTION in options and options.get(savepoints.FORMAT_OPTION) != savepoints.NATIVE
            purpose = Purpose(self.checkpoint_id, canonical=canonical)
            return _PartSnapshot(operator, name, part.snapshot(purpose=purpose), groups)
        number, base = self._bases.of((operator.spec.id, name), self.arrived.barrier.options)
        purpose = Purpose(self.checkpoint_id, True, number, self._bases.ratio)
        snapshot = part.snapshot(purpose=purpose)
        if snapshot.shared:
            self.upload.share(len(self._parts))
        return _PartSnapshot(operator, name, snapshot, groups, base)

    @property
    def reused(self) -> int:
        """Bytes that earlier checkpoints have written."""
        found = {handle for part in self._parts for handle in part.reused}
        for number, part in enumerate(self._parts):
            found |= {*part.base.files.values()} & {*self.upload.files.get(number, {}).values()}
        return sum(handle.size for handle in found)

    @property
    def sliced(self) -> bool:
        """Whether all chunks were handed over."""
        return self._position >= len(self._parts)

    def slice(self) -> None:
        """The next slice.

        Raises:
            SerializationError: a value can't be serialised.
        """
        while not self.sliced:
            part = self._parts[self._position]
            chunks = next(part.snapshot, None)
            if chunks is None:
                if part.snapshot.has_files:
                    self.upload.write_files(self._position, part.snapshot.write_files, part.base.files)
                self._position += 1
                continue
            if chunks:
                self.upload.chunks(self._position, chunks)
            return

    @property
    def whole(self) -> bool:
        """Whether everything was handed over, what the barrier has overtaken too."""
        return self.sliced and (self.log is None or not self.log.open)

    def close(self) -> None:
        """Give up, or say that it is over."""
        if self.log is not None:
            self.log.give_up()
        self._position = len(self._parts)
        for part in self._parts:
            part.snapshot.close()

    def state(self, handles: Mapping[int, StateHandle]) -> TaskState:
        """What the task acknowledges with, when all is written."""
        keyed: dict[str, dict[str, KeyedState]] = {}
        operator: dict[str, OperatorListState] = {}
        for number, part in enumerate(self._parts):
            handle, files = handles.get(number), self.upload.files.get(number, {})
            if not part.snapshot.states and not files:
                continue
            states = tuple(info.to_json() for info in part.snapshot.states)
            written = () if handle is None else (handle,)
            if part.name is None:
                operator[part.operator.spec.id] = OperatorListState(states, written)
            else:
                written = (*part.reused, *written)
                if self._bases is not None:
                    place = part.operator.spec.id, part.name
                    self._bases.written(place, self.checkpoint_id, WrittenPart(written, files))
                made = KeyedState(states, part.key_groups, written, files)
                keyed.setdefault(part.operator.spec.id, {})[part.name] = made
        found: dict[str, OperatorSubtaskState] = {}
        in_flight = () if self.log is None else self.log.state(handles.get)
        for one in self._operators:
            id_, source = one.spec.id, self._source
            state = OperatorSubtaskState(
                keyed.get(id_, {}),
                operator.get(id_),
                source.splits if source is not None and source.operator_id == id_ else (),
                tuple(_plain(*prepared) for prepared in self._committables.get(id_, ())),
                self._keys[id_] if any(part.handles or part.files for part in keyed.get(id_, {}).values()) else None,
                in_flight if one is self._operators[0] else (),
            )
            if not state.is_empty:
                found[id_] = state
        return TaskState(found, self.last, self._source.serial if self._source is not None else 0)


def _plain(checkpoint_id: int, committables: tuple[Committable, ...]) -> Committables:
    version = committables[0].version
    return Committables(checkpoint_id, version, tuple(InlineState(one.data) for one in committables))
