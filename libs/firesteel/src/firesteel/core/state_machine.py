"""State machines whose legal moves stand in one table; any other move raises. Every move is logged with its cause."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from firesteel.core.clock import Clock
from firesteel.core.errors import IllegalTransitionError

S = TypeVar("S", bound=Enum)
logger = logging.getLogger(__name__)
KEPT_MOVES = 100
"""Moves that a history keeps at least; a job may be restarted for ever."""


@dataclass(frozen=True)
class Transition(Generic[S]):
    """One move, as kept in the history."""

    before: S
    after: S
    at_ms: int
    cause: str


class StateMachine(Generic[S]):
    """A state with a table of legal moves.

    Args:
        name: whose state it is, for logs and errors.
        initial: the first state.
        moves: for each state the states it may go to; a state without entry is terminal.
        clock: stamps the history.
        moved: told of each move: the states before and after it.
    """

    def __init__(
        self,
        name: str,
        initial: S,
        moves: Mapping[S, frozenset[S]],
        clock: Clock,
        moved: Callable[[S, S], None] | None = None,
    ) -> None:
        self._name, self._state, self._moves, self._clock, self._moved = name, initial, moves, clock, moved
        self.entered_ms: dict[S, int] = {initial: clock.epoch_ms()}
        """For each state that was reached, the epoch time in ms of the last entry."""
        self.history: list[Transition[S]] = []

    @property
    def state(self) -> S:
        return self._state

    @property
    def is_terminal(self) -> bool:
        """Whether no move leads out of the current state."""
        return not self._moves.get(self._state)

    def can(self, to: S) -> bool:
        """Whether the table has a move from the current state to this one."""
        return to in self._moves.get(self._state, frozenset())

    def move(self, to: S, cause: str) -> None:
        """Go to a state.

        Raises:
            IllegalTransitionError: the table has no such move.
        """
        if not self.can(to):
            story = " -> ".join([t.before.name for t in self.history[-6:]] + [self._state.name])
            raise IllegalTransitionError(
                f"{self._name}: no move {self._state.name} -> {to.name} ({cause}); so far {story}"
            )
        now = self._clock.epoch_ms()
        self.history.append(Transition(self._state, to, now, cause))
        if len(self.history) > 2 * KEPT_MOVES:
            del self.history[:-KEPT_MOVES]
        former_state, self._state = self._state, to
        logger.info("%s: %s -> %s (%s)", self._name, former_state.name, to.name, cause)
        self.entered_ms[to] = now
        if self._moved is not None:
            self._moved(former_state, to)
