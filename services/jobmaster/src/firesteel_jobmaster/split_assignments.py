"""Which subtask got which splits since the last completed checkpoint, so that none is lost and none is read twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from firesteel.functions.source import Split

ALL = 2**63
"""Stands for the serial of a reader that has finished: it has read everything."""


class _Assignment(NamedTuple):
    serial: int
    splits: tuple[Split, ...]
    number: int


class Assignments:
    """Splits of one source, with the serials under which its subtasks got them.

    A reader says with its acknowledgement up to which serial it had got splits when it saw the barrier. Those are in
    its state, the later ones are not. The enumerator's state is taken when the last reader has acknowledged: so what
    was given to a reader and is not in its state is not in the enumerator's either, and is kept beside it.
    """

    def __init__(self) -> None:
        self._given: dict[int, list[_Assignment]] = {}

    def given(self, subtask: int, serial: int, splits: Iterable[Split], number: int = 0) -> None:
        """A subtask got splits; serials rise.

        Args:
            subtask: which.
            serial: under which the reader got them.
            splits: for it.
            number: of the enumerator's message with which they came, if it runs in a task of its own.
        """
        split_tuple = tuple(splits)
        if split_tuple:
            self._given.setdefault(subtask, []).append(_Assignment(serial, split_tuple, number))

    def not_in_state(self, serials: Mapping[int, int], up_to: int = ALL) -> list[tuple[int, Split]]:
        """Splits that no reader had got at its barrier, each with the subtask that they were for.

        Args:
            serials: of all subtasks.
            up_to: number of the enumerator's last message before its own snapshot; later splits are in its state.
        """
        return [
            (subtask, split)
            for subtask, assignments in sorted(self._given.items())
            for assignment in assignments
            if assignment.serial > serials[subtask] and assignment.number <= up_to
            for split in assignment.splits
        ]

    def completed(self, serials: Mapping[int, int]) -> None:
        """A checkpoint with these serials is complete: what is in readers' states needs no bookkeeping."""
        for subtask, last in serials.items():
            later = [assignment for assignment in self._given.get(subtask, ()) if assignment.serial > last]
            if later:
                self._given[subtask] = later
            else:
                self._given.pop(subtask, None)

    def take_back(self, subtasks: Iterable[int]) -> list[Split]:
        """All splits of subtasks that are reset to the last completed checkpoint, or to the beginning."""
        return [
            split
            for subtask in sorted(subtasks)
            for assignment in self._given.pop(subtask, ())
            for split in assignment.splits
        ]

    def clear(self) -> None:
        """The whole source is reset."""
        self._given.clear()

    def __len__(self) -> int:
        return sum(len(assignment.splits) for assignments in self._given.values() for assignment in assignments)
