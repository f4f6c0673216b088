"""Decides whether a snapshot of columns holds only changes, and on which earlier one it builds.

A new base (a whole snapshot) is written when the changes since the last base would be more than a share of it, or when
there are many pieces. What each checkpoint has is remembered until the job builds on a later one. So a checkpoint that
was aborted, or whose completion the task never heard of, loses nothing: the next one says what to build on.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from firesteel.state.columnar.store import ColumnarState
from firesteel.state.snapshots import Purpose

_MOST_PIECES: Final = 32


class _Taken(NamedTuple):
    """What the snapshot of a checkpoint consists of.

    Attributes:
        mark: of the state, at the snapshot.
        entries: of the base.
        changed: entries in the pieces after the base.
        pieces: number of pieces, including the base.
    """

    mark: int
    entries: int
    changed: int = 0
    pieces: int = 1


class Deltas:
    """The snapshots of one state in columns.

    Args:
        state: its state.
    """

    def __init__(self, state: ColumnarState) -> None:
        self._state = state
        self._taken: dict[int, _Taken] = {}

    def begin(self, purpose: Purpose) -> tuple[int | None, int | None]:
        """Decide on the next snapshot: the mark since when it holds changes, and the checkpoint that it builds on.

        Both are None if it has to hold everything.
        """
        state, number = self._state, purpose.base or 0
        state.track_changes()
        # The job builds on no checkpoint before this one any more.
        self._taken = {id_: snapshot_ for id_, snapshot_ in self._taken.items() if id_ >= number}
        base = self._taken.get(number)
        now, since = _Taken(state.mark, state.size), None
        if base is not None:
            state.forget_changes(base.mark)
            changed = state.changed(base.mark)
            if (
                changed is not None
                and base.changed + changed <= purpose.delta_ratio * base.entries
                and base.pieces < _MOST_PIECES
            ):
                since = base.mark
                now = _Taken(state.mark, base.entries, base.changed + changed, base.pieces + 1)
        self._taken[purpose.checkpoint_id] = now
        return since, None if since is None else number
