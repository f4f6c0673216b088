"""Snapshots of changes: what earlier checkpoints hold of a task's state in columns is not written again.

The barrier of a checkpoint names an earlier one that is complete and stays until the new one is. Of a part that this
task wrote for that one, only the rows that have changed since are written: the new checkpoint names the files of the
earlier one as well, oldest first. When the changes since the last whole snapshot (the base) would be more than a share
of it, or there are many pieces, a new base is written. So a checkpoint that was given up, or whose end nobody told the
task, loses nothing: the next one is told what to build on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from firesteel.checkpoint.handles import StateHandle
from firesteel.runtime.checkpoints.parts import KeyedPart
from firesteel.state.backend import KeyedSnapshot

BASE: Final = "base"
"""Option of a barrier: the id of the checkpoint to build on."""
_MOST_PIECES: Final = 32
Place = tuple[str, str]
"""Id of the operator, name of its part."""


@runtime_checkable
class ChangingPart(KeyedPart, Protocol):
    """A part that can write what has changed (``firesteel.state.columnar.store.ColumnarState``)."""

    mark: int

    @property
    def size(self) -> int:
        """Entries."""

    def track_changes(self) -> None:
        """From now on there may be snapshots of changes."""

    def changed(self, since: int) -> int | None:
        """How much has changed after the snapshot of a mark; None = it is not known."""

    def forget_changes(self, until: int) -> None:
        """Nobody will ask for changes since an earlier snapshot than that of this mark."""

    def snapshot(self, slice_seconds: float = ..., since: int | None = ...) -> KeyedSnapshot:
        """Begin to write out the state of now, or what has changed after the snapshot of a mark."""


@dataclass(frozen=True)
class Written:
    """What a checkpoint has of a part.

    Attributes:
        mark: of the part, at the snapshot.
        entries: of the base.
        changed: in the pieces behind it.
        handles: of the base and those pieces; the newest is missing while it is being written.
    """

    mark: int
    entries: int
    changed: int = 0
    handles: tuple[StateHandle, ...] = ()


class Deltas:
    """Of one task.

    Args:
        ratio: the changes since a base may be so much of its entries.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._written: dict[Place, dict[int, Written]] = {}

    def begin(self, place: Place, part: ChangingPart, options: Mapping[str, Any]) -> tuple[KeyedSnapshot, Written]:
        """Begin to write a part; with what the checkpoint will have of it."""
        part.track_changes()
        mark, number = part.mark, int(options.get(BASE, 0))
        known = self._written.get(place, {})
        self._written[place] = known = {id_: written for id_, written in known.items() if id_ >= number}
        before = known.get(number)
        if before is not None:
            part.forget_changes(before.mark)
            changed = part.changed(before.mark)
            if (
                changed is not None
                and before.changed + changed <= self._ratio * before.entries
                and len(before.handles) < _MOST_PIECES
            ):
                written = Written(mark, before.entries, before.changed + changed, before.handles)
                return part.snapshot(since=before.mark), written
        return part.snapshot(), Written(mark, part.size)

    def written(self, place: Place, checkpoint_id: int, written: Written) -> None:
        """A part was written for a checkpoint, which may become complete."""
        self._written.setdefault(place, {})[checkpoint_id] = written
