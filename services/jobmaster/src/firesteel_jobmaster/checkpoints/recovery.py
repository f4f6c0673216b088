"""Finding the checkpoints that a job goes on from when it begins."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from firesteel.config.options import STATE_RECOVERY_PATH
from firesteel.core.backoff import pause_after
from firesteel.core.clock import Clock
from firesteel.core.errors import StateRestoreError
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import WorkResult
from firesteel_jobmaster.checkpoints.completed import CompletedCheckpoints

logger = logging.getLogger(__name__)
TIMER: Final = "checkpoint-recover"
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries to read what is there. There is no last one for a job that has run: a storage that is away
is no failure of the job."""
PATIENCE_OF_USERS: Final = 10.0
"""Seconds for which a checkpoint that a user has named is tried to be read by the first JobMaster of a job: who has
submitted it hears of it, and can name another one. Later nobody may be there, and the job waits as for its own."""


class Recovery:
    """Reads storage and store when a job begins, and again as long as they can't be read.

    Args:
        completed: takes what is found.
        clock: monotonic.
        emit: has the shell do something.
    """

    def __init__(self, completed: CompletedCheckpoints, clock: Clock, emit: Callable[[do.Instruction], None]) -> None:
        self._completed, self._clock, self._emit = completed, clock, emit
        self._since: float | None = None
        """When the checkpoints were asked for first; None: the answer is known, or was never asked for."""
        self._failures = 0
        self._follows = False
        """A JobMaster of the job was lost before."""
        self.is_unread = False
        """Nobody knows which checkpoints there are, also when the job has ended by now."""

    @property
    def is_under_way(self) -> bool:
        """Whether it is not known yet what there is."""
        return self._since is not None

    def begin(self, *, follows: bool) -> None:
        """Ask for the checkpoints.

        Args:
            follows: a JobMaster of the job was lost before: the job waits for whatever may pass.
        """
        self._follows = follows
        self._since, self._failures = self._clock.monotonic(), 0
        self.is_unread = True
        self._completed.recover()

    def again(self) -> None:
        """The timer is up."""
        if self._since is not None:
            self._completed.recover()

    def stop(self, state: str) -> None:
        """The job has ended in this state, and needs no answer any more; if it has failed, its checkpoints stay."""
        if self._since is not None and state == "FAILED":
            self._completed.unreadable()
        self._since = None

    def work_done(self, result: WorkResult) -> bool:
        """The storage has answered; returns whether it is known now what the job goes on from.

        Raises:
            StateRestoreError: the job can't go on from what there is.
        """
        if self._since is None:
            return False
        user_waits = result.of_user and not self._follows
        tries_again = not user_waits or (
            not result.foreign and self._clock.monotonic() - self._since < PATIENCE_OF_USERS
        )
        if result.error is not None and not result.corrupted and tries_again:
            self._failures += 1
            pause = pause_after(self._failures, FIRST_PAUSE, FIRST_PAUSE if user_waits else LONGEST_PAUSE)
            logger.warning("checkpoints can't be read, next try in %g s: %s", pause, result.error)
            self._emit(do.SetTimer(TIMER, pause))
            return False
        self._since = None
        if result.error is not None:
            self._completed.unreadable()
            self.is_unread = not (result.of_user or result.refused)
            if result.of_user:
                raise StateRestoreError(
                    f"The job can't start from the checkpoint that it was given ({STATE_RECOVERY_PATH.key}, -s): "
                    f"{result.error}. Nothing was changed. Give it the directory of a whole checkpoint, "
                    "<execution.checkpointing.dir>/<job id>/chk-<n>"
                )
            if result.refused:
                raise StateRestoreError(f"The job can't take checkpoints: {result.error}")
            raise StateRestoreError(
                f"The job can't go on from its checkpoints: {result.error}. They stay where they are"
            )
        self._completed.recovered(result)
        self.is_unread = False
        try:
            self._completed.latest()
        except StateRestoreError:  # another version of the program may fit
            self._completed.unreadable()
            raise
        return True
