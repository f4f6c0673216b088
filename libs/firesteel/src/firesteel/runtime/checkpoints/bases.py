"""What this task has in earlier checkpoints: later ones may build on it.

The barrier of a checkpoint names an earlier one that is complete and stays until the new one is. A state backend that
has written for that one, or was restored from it, may write only what has changed: the new checkpoint names what it
needs of the earlier one as well.
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
    """What a checkpoint has of a part.

    Attributes:
        handles: streams of chunks, oldest first.
        files: by name.
    """

    handles: tuple[StateHandle, ...] = ()
    files: Mapping[str, StateHandle] = {}


class Bases:
    """Of one task.

    Args:
        ratio: the changes since a whole snapshot may be so much of its entries.
    """

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._written: dict[Place, dict[int, WrittenPart]] = {}

    def of(self, place: Place, options: Mapping[str, Any]) -> tuple[int | None, WrittenPart]:
        """The checkpoint that a barrier lets a part build on, and what that one has; None if there is nothing."""
        number = int(options.get(BASE, 0))
        known = self._written.get(place, {})
        self._written[place] = known = {id_: written for id_, written in known.items() if id_ >= number}
        return (number, known[number]) if number in known else (None, WrittenPart())

    def written(self, place: Place, checkpoint_id: int, written: WrittenPart) -> None:
        """A part was written for a checkpoint, which may become complete, or was restored from it."""
        self._written.setdefault(place, {})[checkpoint_id] = written
