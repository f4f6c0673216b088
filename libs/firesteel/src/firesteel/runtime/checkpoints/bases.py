"""Remembers what a task has written to earlier checkpoints, so that later ones can be incremental.

The barrier of a checkpoint names its base: an earlier checkpoint that is complete, and that will not be removed before
the new one is complete. A state backend that wrote state for the base, or was restored from it, may write only the
changes since; the new checkpoint then also refers to the files of the base that it needs.

``state.columnar.deltas`` remembers marks for the same checkpoints, in a table of its own. Marks count changes of arrays
of this process, and end with it; what is here are handles, which the next process gets back. So a part that was
restored has an entry here and none there, and its first snapshot is a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from firesteel.checkpoint.handles import StateHandle

BASE: Final = "base"
"""Option of a barrier: the id of the checkpoint to build on."""
Place = tuple[str, str]
"""Id of the operator, name of its part."""


class WrittenPart(NamedTuple):
    """The handles of one part of an operator's state in a checkpoint.

    Attributes:
        handles: streams of chunks, oldest first.
        files: files by name.
    """

    handles: tuple[StateHandle, ...] = ()
    files: Mapping[str, StateHandle] = {}


class Bases:
    """The parts of state that one task has in checkpoints on which later ones may build.

    Args:
        ratio: largest ratio of changes since a full snapshot to the entries of that; beyond it a full one is written.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._written: dict[Place, dict[int, WrittenPart]] = {}

    def base(self, place: Place, options: Mapping[str, Any]) -> tuple[int | None, WrittenPart]:
        """The checkpoint on which a part may build, by the options of the barrier, and its handles; else None.

        Checkpoints before that one are forgotten: no later barrier names them.
        """
        base_id = int(options.get(BASE, 0))
        written = self._written.get(place, {})
        self._written[place] = written = {id_: part for id_, part in written.items() if id_ >= base_id}
        return (base_id, written[base_id]) if base_id in written else (None, WrittenPart())

    def written(self, place: Place, checkpoint_id: int, part: WrittenPart) -> None:
        """Note that a part was written for a checkpoint, which may become complete, or was restored from it."""
        self._written.setdefault(place, {})[checkpoint_id] = part
