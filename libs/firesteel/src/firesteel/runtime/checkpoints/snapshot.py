"""A snapshot of all operators of a task: it begins between two records, and is written in slices while records flow.

The beginning is the synchronous part of a checkpoint, in which user code is asked for its state; state backends only
note the moment, whatever the size of their state. The slices serialise what the state was at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.chunks import HEADER_BYTES
from firesteel.checkpoint.handles import InlineState, StateHandle
from firesteel.checkpoint.state_figures import StateFigures, other_figures
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
from firesteel.runtime.checkpoints.figures import figures_of_part
from firesteel.runtime.checkpoints.in_flight import InFlightLog
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.checkpoints.uploads import Upload
from firesteel.runtime.operator_base.base import KeyedPart, Operator
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.state.snapshots import KeyedSnapshot, Purpose, StateChunk


class _PartSnapshot(NamedTuple):
    """The snapshot of a part of an operator; its index in the list is its part number in the upload."""

    operator: Operator
    name: str | None
    """Name of the part; None for operator state."""
    snapshot: KeyedSnapshot
    key_groups: tuple[int, int]
    base: WrittenPart = WrittenPart()
    """Handles of the part in the checkpoint on which this one builds."""

    @property
    def reused(self) -> tuple[StateHandle, ...]:
        """Streams of chunks of earlier checkpoints to which this one refers."""
        return self.base.handles if self.snapshot.base is not None else ()


class TaskSnapshot:
    """The snapshot of one task for one checkpoint.

    Args:
        arrived: the barrier.
        operators: operators of the chain, head first.
        upload: writes the chunks.
        source: position of the reader, in a source task.
        finished: whether the input has ended, so that no record will come behind the barrier.
        bases: state in earlier checkpoints; None = this one builds on none, and none will build on it.

    Attributes:
        last: as ``finished``.
        half_written: whether ``begin`` failed in an operator that may have written a part of its results elsewhere.
        log: log of the records that the barrier has overtaken.
    """

    half_written = False
    log: InFlightLog | None = None

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
        self._chunks: dict[tuple[int, int], tuple[int, int]] = {}
        """Part and index of a state -> entries and bytes of its chunks."""
        self._committables: dict[str, tuple[tuple[int, tuple[Committable, ...]], ...]] = {}
        self._keys: dict[str, KeyKinds | None] = {}

    def begin(self) -> None:
        """Begin the snapshot of all operators (the synchronous part); runs user code and raises what that raises."""
        # All checks come first: an operator that had snapshotted already could not take it back.
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
        base_id, base = self._bases.base((operator.spec.id, name), self.arrived.barrier.options)
        purpose = Purpose(self.checkpoint_id, True, base_id, self._bases.ratio)
        snapshot = part.snapshot(purpose=purpose)
        if snapshot.shared:
            self.upload.share(len(self._parts))
        return _PartSnapshot(operator, name, snapshot, groups, base)

    @property
    def reused(self) -> int:
        """Bytes of earlier checkpoints to which this one refers, and which it need not write."""
        reused = {handle for part in self._parts for handle in part.reused}
        for number, part in enumerate(self._parts):
            reused |= {*part.base.files.values()} & {*self.upload.files.get(number, {}).values()}
        return sum(handle.size for handle in reused)

    @property
    def sliced(self) -> bool:
        """Whether all chunks of operators were handed to the upload."""
        return self._position >= len(self._parts)

    def slice(self) -> None:
        """Serialise the next slice and hand it to the upload.

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
                self._count(chunks)
                self.upload.chunks(self._position, chunks)
            return

    def _count(self, chunks: Sequence[StateChunk]) -> None:
        for chunk in chunks:
            place = self._position, chunk.state
            entries, size = self._chunks.get(place, (0, 0))
            self._chunks[place] = entries + chunk.count, size + HEADER_BYTES + len(chunk.data)

    @property
    def whole(self) -> bool:
        """Whether everything was handed to the upload, including the log of overtaken records."""
        return self.sliced and (self.log is None or not self.log.open)

    def close(self) -> None:
        """Release the snapshots of all parts, because they are written or given up."""
        if self.log is not None:
            self.log.give_up()
        self._position = len(self._parts)
        for part in self._parts:
            part.snapshot.close()

    def state(self, handles: Mapping[int, StateHandle]) -> TaskState:
        """The state with which the task acknowledges the checkpoint, when everything is written."""
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
                keyed_state = KeyedState(states, part.key_groups, written, files)
                keyed.setdefault(part.operator.spec.id, {})[part.name] = keyed_state
        states_of_operators: dict[str, OperatorSubtaskState] = {}
        in_flight = () if self.log is None else self.log.state(handles.get)
        for chained in self._operators:
            id_, source = chained.spec.id, self._source
            state = OperatorSubtaskState(
                keyed.get(id_, {}),
                operator.get(id_),
                source.splits if source is not None and source.operator_id == id_ else (),
                tuple(_plain(*prepared) for prepared in self._committables.get(id_, ())),
                self._keys[id_] if any(part.handles or part.files for part in keyed.get(id_, {}).values()) else None,
                in_flight if chained is self._operators[0] else (),
            )
            if not state.is_empty:
                states_of_operators[id_] = state
        return TaskState(states_of_operators, self.last, self._source.serial if self._source is not None else 0)

    def figures(self, state: TaskState) -> list[StateFigures]:
        """How much there is of each state, for people; ``state`` is what the method of this name has returned."""
        figures: list[StateFigures] = []
        for number, part in enumerate(self._parts):
            id_ = part.operator.spec.id
            written = state.operators.get(id_)
            if written is None or not part.snapshot.states:
                continue
            if part.name is None:
                handles = written.operator.handles if written.operator is not None else ()
            else:
                keyed = written.keyed[part.name]
                handles = (*keyed.handles, *keyed.files.values())
            in_chunks = [self._chunks.get((number, index), (0, 0)) for index in range(len(part.snapshot.states))]
            total = sum(handle.size for handle in handles)
            figures += figures_of_part(id_, part.snapshot.states, in_chunks, part.snapshot.amounts, total)
        for id_, written in state.operators.items():
            figures += other_figures(id_, written)
        return figures


def _plain(checkpoint_id: int, committables: tuple[Committable, ...]) -> Committables:
    version = committables[0].version
    return Committables(checkpoint_id, version, tuple(InlineState(committable.data) for committable in committables))
