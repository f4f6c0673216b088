"""A snapshot of all operators of a task: begun between two records, written out in slices while records flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

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
from firesteel.runtime.checkpoints.deltas import ChangingPart, Deltas, Written
from firesteel.runtime.checkpoints.parts import KeyedPart
from firesteel.runtime.checkpoints.position import SourcePosition
from firesteel.runtime.checkpoints.uploads import Upload
from firesteel.runtime.initialization import SnapshotContext
from firesteel.runtime.operators import Operator
from firesteel.state.backend import KeyedSnapshot


class _Part(NamedTuple):
    """A part of an operator on its way out; its index in the list is its number in the upload."""

    operator: Operator
    name: str | None
    """None: operator state."""
    snapshot: KeyedSnapshot
    key_groups: tuple[int, int]
    written: Written | None = None
    """Not None: later checkpoints may use what is written."""


class TaskSnapshot:
    """See the module.

    Args:
        arrived: the barrier.
        operators: of the chain, head first.
        upload: gets the chunks.
        source: of a source task.
        finished: the input has ended: no record will come behind the barrier.
        deltas: parts that can write only what has changed; None = all is written.

    Attributes:
        last: no record comes behind it.
        half_written: an operator failed in ``begin`` that had begun to write to somewhere else.
    """

    half_written = False

    def __init__(
        self,
        arrived: Arrived,
        operators: Sequence[Operator],
        upload: Upload,
        source: SourcePosition | None,
        *,
        finished: bool,
        deltas: Deltas | None = None,
    ) -> None:
        self._deltas = deltas
        self.arrived, self.upload, self.last = arrived, upload, finished
        self.checkpoint_id = arrived.barrier.checkpoint_id
        self._operators, self._source = operators, source
        self._parts: list[_Part] = []
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
            except Exception:
                self.half_written = operator.writes_elsewhere
                raise
        for operator in self._operators:
            uncommitted = operator.uncommitted()
            if uncommitted is not None:
                self._committables[operator.spec.id] = uncommitted
            self._keys[operator.spec.id] = operator.key_kinds()
            for name, part in operator.snapshot_parts().items():
                self._parts.append(self._begin(operator, name, part))
            self._parts.append(_Part(operator, None, operator.operator_state.snapshot(), (0, 0)))

    def _begin(self, operator: Operator, name: str, part: KeyedPart) -> _Part:
        groups = operator.key_groups[0], operator.key_groups[-1]
        if self._deltas is None or not isinstance(part, ChangingPart):
            return _Part(operator, name, part.snapshot(), groups)
        snapshot, written = self._deltas.begin((operator.spec.id, name), part, self.arrived.barrier.options)
        self.upload.share(len(self._parts))
        return _Part(operator, name, snapshot, groups, written)

    @property
    def reused(self) -> int:
        """Bytes that earlier checkpoints have written."""
        return sum(handle.size for part in self._parts if part.written is not None for handle in part.written.handles)

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
                self._position += 1
                continue
            if chunks:
                self.upload.chunks(self._position, chunks)
            return

    def close(self) -> None:
        """Give up, or say that it is over."""
        self._position = len(self._parts)
        for part in self._parts:
            part.snapshot.close()

    def state(self, handles: Mapping[int, StateHandle]) -> TaskState:
        """What the task acknowledges with, when all is written."""
        keyed: dict[str, dict[str, KeyedState]] = {}
        operator: dict[str, OperatorListState] = {}
        for number, part in enumerate(self._parts):
            handle = handles.get(number)
            if not part.snapshot.states:
                continue
            states = tuple(info.to_json() for info in part.snapshot.states)
            written = () if handle is None else (handle,)
            if part.name is None:
                operator[part.operator.spec.id] = OperatorListState(states, written)
            else:
                if part.written is not None and self._deltas is not None:
                    written = (*part.written.handles, *written)
                    place = part.operator.spec.id, part.name
                    self._deltas.written(place, self.checkpoint_id, replace(part.written, handles=written))
                keyed.setdefault(part.operator.spec.id, {})[part.name] = KeyedState(states, part.key_groups, written)
        found: dict[str, OperatorSubtaskState] = {}
        for one in self._operators:
            id_, source = one.spec.id, self._source
            state = OperatorSubtaskState(
                keyed.get(id_, {}),
                operator.get(id_),
                source.splits if source is not None and source.operator_id == id_ else (),
                tuple(_plain(*prepared) for prepared in self._committables.get(id_, ())),
                self._keys[id_] if any(part.handles for part in keyed.get(id_, {}).values()) else None,
            )
            if not state.is_empty:
                found[id_] = state
        return TaskState(found, self.last, self._source.serial if self._source is not None else 0)


def _plain(checkpoint_id: int, committables: tuple[Committable, ...]) -> Committables:
    version = committables[0].version
    return Committables(checkpoint_id, version, tuple(InlineState(one.data) for one in committables))
