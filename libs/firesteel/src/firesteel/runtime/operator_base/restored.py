"""The state of a checkpoint that one operator of a subtask is restored from.

Operators take it, so it stands below ``checkpoints.restore``, which makes it; ``checkpoints.background`` is the thread
on which that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from firesteel.checkpoint.subtask_state import KeyKinds
from firesteel.core.errors import StateRestoreError
from firesteel.functions.two_phase import Committable
from firesteel.state.operator_state import OperatorSnapshot
from firesteel.state.snapshots import WrittenState


@dataclass(frozen=True)
class OperatorRestored:
    """The state from which one operator of one subtask goes on.

    Attributes:
        checkpoint_id: id of the checkpoint.
        subtask, parallelism: numbers of the new subtask.
        keyed: for each part of keyed state, what former subtasks have written of it.
        operator: operator state of former subtasks, in their order.
        splits: splits of a source, as plain data.
        committables: committables of a sink.
        keys: kinds of the keys of ``keyed``.
        alone: whether ``operator`` is only that of the former subtask with the same number.
    """

    checkpoint_id: int
    subtask: int
    parallelism: int
    keyed: Mapping[str, Sequence[WrittenState]] = field(default_factory=dict)
    operator: Sequence[OperatorSnapshot] = ()
    splits: Sequence[Mapping[str, Any]] = ()
    committables: Sequence[Committable] = ()
    keys: KeyKinds | None = None
    alone: bool = False


def no_such_part(operator: str, part: str, known: Iterable[str]) -> StateRestoreError:
    """The error for state of a part that the operator does not have."""
    has = ", ".join(known) or "none"
    return StateRestoreError(
        f"operator {operator!r}: the checkpoint has state of its part {part!r}, which the operator does not have any "
        f"more (it has: {has}). It was written by an operator of another kind: give the new one another uid."
    )
