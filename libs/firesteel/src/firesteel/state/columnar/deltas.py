"""Decides whether a snapshot of columns holds only changes, and on which earlier one it builds.

A new base (a whole snapshot) is written when the changes since the last base would be more than a share of it, or when
there are many pieces. What each checkpoint has is remembered until the job builds on a later one. So a checkpoint that
was aborted, or whose completion the task never heard of, loses nothing: the next one says what to build on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from firesteel.state.columnar.row_table import RowTable
from firesteel.state.columnar.store import ColumnarState
from firesteel.state.snapshots import Purpose

_MOST_PIECES: Final = 32


class _Taken(NamedTuple):
    """What the snapshot of a checkpoint consists of.

    Attributes:
        marks: of the states, at the snapshot.
        entries: of the base.
        changed: entries in the pieces after the base.
        pieces: number of pieces, including the base.
    """

    marks: tuple[int, ...]
    entries: int
    changed: int = 0
    pieces: int = 1


class Deltas:
    """The snapshots of the states in columns of one operator.

    Args:
        states: all of its states.
    """

    def __init__(self, states: Sequence[ColumnarState | RowTable]) -> None:
        self._states = states
        self._taken: dict[int, _Taken] = {}

    def begin(self, purpose: Purpose) -> tuple[Sequence[int | None], int | None]:
        """Decide on the next snapshot: for each state the mark since when it holds changes, and the checkpoint that it
        builds on.

        All are None if it has to hold everything.
        """
        states, number = self._states, purpose.base or 0
        for state in states:
            state.track_changes()
        # The job builds on no checkpoint before this one any more.
        self._taken = {id_: snapshot_ for id_, snapshot_ in self._taken.items() if id_ >= number}
        base = self._taken.get(number)
        marks = tuple(state.mark for state in states)
        now = _Taken(marks, sum(state.size for state in states))
        since: Sequence[int | None] = [None] * len(states)
        is_delta = False
        if base is not None:
            changed = self._changed(base)
            if (
                changed is not None
                and base.changed + changed <= purpose.delta_ratio * base.entries
                and base.pieces < _MOST_PIECES
            ):
                since, is_delta = base.marks, True
                now = _Taken(marks, base.entries, base.changed + changed, base.pieces + 1)
        self._taken[purpose.checkpoint_id] = now
        return since, number if is_delta else None

    def _changed(self, base: _Taken) -> int | None:
        """Number of changes since a snapshot; None = unknown."""
        total = 0
        for state, mark in zip(self._states, base.marks, strict=True):
            state.forget_changes(mark)
            changed = state.changed(mark)
            if changed is None:
                return None
            total += changed
        return total
