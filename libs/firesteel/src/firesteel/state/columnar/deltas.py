"""When a snapshot of columns holds only what has changed, and on which earlier one it builds.

When the changes since the last whole snapshot (the base) would be more than a share of it, or there are many pieces, a
new base is written. What each checkpoint has is remembered until the job builds on a later one. So a checkpoint that
was given up, or whose end nobody told the task, loses nothing: the next one is told what to build on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from firesteel.state.columnar.store import ColumnarState
from firesteel.state.snapshots import Purpose

_MOST_PIECES: Final = 32


class _Taken(NamedTuple):
    """What a checkpoint has.

    Attributes:
        mark: of the state, at the snapshot.
        entries: of the base.
        changed: in the pieces behind it.
        pieces: how many there are, the base among them.
    """

    mark: int
    entries: int
    changed: int = 0
    pieces: int = 1


class Deltas:
    """The snapshots of one state.

    Args:
        state: what is written.
    """

    def __init__(self, state: ColumnarState) -> None:
        self._state = state
        self._taken: dict[int, _Taken] = {}

    def begin(self, purpose: Purpose) -> tuple[int | None, int | None]:
        """A snapshot is about to be taken: the mark since when it has to hold changes, and the checkpoint of that.

        None and None = it has to hold everything.
        """
        state, number = self._state, purpose.base or 0
        state.track_changes()
        self._taken = {id_: taken for id_, taken in self._taken.items() if id_ >= number}
        before = self._taken.get(number)
        now, since = _Taken(state.mark, state.size), None
        if before is not None:
            state.forget_changes(before.mark)
            changed = state.changed(before.mark)
            if (
                changed is not None
                and before.changed + changed <= purpose.delta_ratio * before.entries
                and before.pieces < _MOST_PIECES
            ):
                since = before.mark
                now = _Taken(state.mark, before.entries, before.changed + changed, before.pieces + 1)
        self._taken[purpose.checkpoint_id] = now
        return since, None if since is None else number
