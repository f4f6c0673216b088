"""One executor of a TaskManager: its states and moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from firesteel.core.errors import IllegalTransitionError


class ExecutorState(Enum):
    """States of a TaskManager's newest executor."""

    MISSING = "MISSING"
    """The TaskManager has none, and needs one."""
    ASKED = "ASKED"
    """The TaskManager is being told to start one."""
    STARTED = "STARTED"
    """The TaskManager was told; the fleet does not see the executor yet."""
    ATTACHED = "ATTACHED"
    """Slots can run on it."""


MOVES: Final[Mapping[ExecutorState, frozenset[ExecutorState]]] = {
    ExecutorState.MISSING: frozenset({ExecutorState.ASKED, ExecutorState.ATTACHED}),
    ExecutorState.ASKED: frozenset({ExecutorState.STARTED, ExecutorState.ATTACHED, ExecutorState.MISSING}),
    ExecutorState.STARTED: frozenset({ExecutorState.ATTACHED, ExecutorState.MISSING}),
    ExecutorState.ATTACHED: frozenset({ExecutorState.MISSING}),
}
"""MISSING -> ATTACHED: one that a former ResourceManager asked for."""


@dataclass
class Executor:
    """A TaskManager's newest executor."""

    id: str = ""
    """Empty while the fleet has given none. While MISSING: of the executor that the TaskManager has registered with."""
    state: ExecutorState = ExecutorState.MISSING
    since: float = 0.0
    """When it came into this state (monotonic seconds)."""
    attempt: int = 0
    """Number of the order that is or was answered; no other TaskManager has had the same."""
    missing_since: float | None = None
    """Time since when the fleet does not list it, while ATTACHED."""
    not_before: float = 0.0
    """Time when the next one may be started, while MISSING."""
    failures: int = 0
    """Executors of the TaskManager that have failed in a row."""
    cause: str = ""
    """Cause of the last failure."""

    def move(self, to: ExecutorState, now: float) -> None:
        """Go to a state.

        Raises:
            IllegalTransitionError: there is no such move.
        """
        if to not in MOVES[self.state]:
            raise IllegalTransitionError(f"executor {self.id!r}: no move {self.state.name} -> {to.name}")
        self.state, self.since, self.missing_since = to, now, None
