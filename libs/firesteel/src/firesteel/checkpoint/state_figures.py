"""How much there is of each state in a checkpoint, for people: by operator and state, and two checkpoints compared.

Slots count what they write, and send the figures with their acknowledgement; nothing is read for them. Where a snapshot
has no chunks with all entries (files of a state backend), its backend estimates, and the figures say so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from firesteel.checkpoint.subtask_state import OperatorSubtaskState

STATES: Final = "states"
"""Metric of an acknowledgement: plain ``StateFigures`` of a task."""
NEW, GONE, GROWN, SHRUNK, SAME = "new", "gone", "grown", "shrunk", "same"
"""What became of a state, or an operator, between two checkpoints."""
Place = tuple[str, str, str]
"""Operator, name and kind of a state."""


@dataclass(frozen=True)
class StateFigures:
    """How much there is of one state.

    Attributes:
        operator_id: its operator.
        name, kind: of the state (``StateInfo``), or of what is beside them: ``splits``,
            ``committables`` and ``in flight`` (records that a barrier has overtaken).
        entries: number of keys, of timers, of elements of a list of operator state; None = unknown.
        size: bytes, including those that other checkpoints have as well; None = unknown.
        counted: whether the entries were counted; else their number is an estimate.
        measured: whether the size is exact; else it is this state's estimated part of what is.
    """

    operator_id: str
    name: str
    kind: str
    entries: int | None
    size: int | None
    counted: bool = True
    measured: bool = True

    @property
    def place(self) -> Place:
        return self.operator_id, self.name, self.kind

    def plus(self, other: StateFigures, sign: int = 1) -> StateFigures:
        """The figures of both together; without those of the other one for a ``sign`` of -1."""
        entries = None if self.entries is None or other.entries is None else self.entries + sign * other.entries
        size = None if self.size is None or other.size is None else self.size + sign * other.size
        counted, measured = self.counted and other.counted, self.measured and other.measured
        return replace(self, entries=entries, size=size, counted=counted, measured=measured)

    def to_plain(self) -> list[Any]:
        return [self.operator_id, self.name, self.kind, self.entries, self.size, self.counted, self.measured]

    @classmethod
    def from_plain(cls, plain: Any) -> StateFigures | None:
        """The inverse of ``to_plain``; None for what is malformed: it comes from slots, where user code runs."""
        match plain:
            case [str(operator_id), str(name), str(kind), int(entries), int(size), bool(counted), bool(measured)]:
                return cls(operator_id, name, kind, entries, size, counted, measured)
        return None


@dataclass(frozen=True)
class OperatorFigures:
    """How much state one operator has.

    Attributes:
        operator_id, uid, name: identify the operator; the id is that of the uid, where there is one.
        size: bytes of all its state.
        states: figures of each state.
    """

    operator_id: str
    uid: str | None
    name: str
    size: int
    states: tuple[StateFigures, ...]


def summed(figures: Iterable[StateFigures]) -> list[StateFigures]:
    """Figures over all subtasks."""
    sums: dict[Place, StateFigures] = {}
    for row in figures:
        sums[row.place] = sums[row.place].plus(row) if row.place in sums else row
    return list(sums.values())


def other_figures(operator_id: str, written: OperatorSubtaskState) -> list[StateFigures]:
    """Figures of positions in splits, of committables, and of records that a barrier has overtaken."""
    items = [item for committables in written.committables for item in committables.items]
    sizes = {
        "splits": [len(json.dumps(dict(split))) for split in written.splits],
        "committables": [item.size for item in items],
        "in flight": [records.handle.size for records in written.in_flight],
    }
    return [StateFigures(operator_id, kind, kind, len(some), sum(some)) for kind, some in sizes.items() if some]


def compared(before: Sequence[OperatorFigures] | None, after: Sequence[OperatorFigures]) -> list[dict[str, Any]]:
    """The operators and states of two checkpoints, as plain data; operators are matched by their ids.

    Args:
        before: of the earlier one; None = there is none to compare with, so nothing is new.
        after: of the later one; its operators come first, in its order.
    """
    former = {operator.operator_id: operator for operator in before or ()}
    rows = [_compared_operator(former.pop(operator.operator_id, None), operator) for operator in after]
    rows += [_compared_operator(operator, None) for operator in former.values()]
    if before is None:
        for row in rows:
            row["change"] = None
            for state in row["states"]:
                state["change"] = None
    return rows


def _compared_operator(before: OperatorFigures | None, after: OperatorFigures | None) -> dict[str, Any]:
    operator = after or before
    assert operator is not None
    former = {state.place: state for state in (before.states if before is not None else ())}
    states = [
        _compared_state(former.pop(state.place, None), state) for state in (after.states if after is not None else ())
    ]
    states += [_compared_state(state, None) for state in former.values()]
    sizes = None if before is None else before.size, None if after is None else after.size
    return {
        "id": operator.operator_id,
        "uid": operator.uid,
        "name": operator.name,
        "size": sizes[1],
        "base-size": sizes[0],
        "change": _change(before is not None, after is not None, sizes),
        "states": states,
    }


def _compared_state(before: StateFigures | None, after: StateFigures | None) -> dict[str, Any]:
    state = after or before
    assert state is not None
    sizes = None if before is None else before.size, None if after is None else after.size
    entries = None if before is None else before.entries, None if after is None else after.entries
    return {
        "name": state.name,
        "kind": state.kind,
        "entries": entries[1],
        "size": sizes[1],
        "entries-about": not state.counted,
        "size-about": not state.measured,
        "base-entries": entries[0],
        "base-size": sizes[0],
        "change": _change(before is not None, after is not None, sizes, entries),
    }


def _change(was: bool, is_now: bool, *pairs: tuple[int | None, int | None]) -> str | None:
    """What happened, by the first pair of numbers that differ; None where none of them is known."""
    if was != is_now:
        return NEW if is_now else GONE
    known = [(before, after) for before, after in pairs if before is not None and after is not None]
    for before, after in known:
        if before != after:
            return GROWN if after > before else SHRUNK
    return SAME if known else None
