"""What an operator gets back from a checkpoint, in the slot: descriptions and handles."""

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
    """What one operator of one subtask goes on from.

    Attributes:
        checkpoint_id: of the checkpoint.
        subtask, parallelism: of now.
        keyed: by part: what each of several former subtasks wrote.
        operator: what former subtasks wrote, in their order.
        splits: plain splits of a source.
        committables: of a sink.
        keys: what is known of the keys of ``keyed``.
        alone: ``operator`` is only what the subtask of the same number wrote.
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
