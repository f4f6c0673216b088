"""State is read and decoded by another thread: until it is there, the task's loop serves everybody else."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from socket import gethostname

from firesteel.checkpoint.assign import TaskRestore
from firesteel.core.errors import CheckpointStorageError, CheckpointVersionError, StateAwayError, TaskInterrupt
from firesteel.runtime.checkpoints.in_flight import InFlightReader, Replayed
from firesteel.runtime.checkpoints.restore import OpenState, restore_operators
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import TaskInfo

Apart = Callable[[CancelToken, Callable[[], None]], None]
"""Has something done for a task, whose token is given, by a thread that may wait."""


def at_once(token: CancelToken, work: Callable[[], None]) -> None:
    """Do it here and now."""
    work()


class Restoring:
    """One task's operators take over their state, before any is opened. Nobody else may touch them meanwhile.

    Args:
        restore: what the task goes on from.
        operators: of its chain.
        info: of the task.
        open_state: reads state from the checkpoint storage.
        on_done: called on the thread of ``run``, last.

    Attributes:
        done: whether ``run`` is over; its error, if it raised, is ``error``.
        in_flight: what the task is to replay.
        held: calls that wait until the task is open.
    """

    def __init__(
        self,
        restore: TaskRestore,
        operators: Sequence[Operator],
        info: TaskInfo,
        open_state: OpenState,
        on_done: Callable[[], None],
    ) -> None:
        self._restore, self._operators, self._info = restore, operators, info
        self._open_state, self._on_done = open_state, on_done
        self._given_up = False
        self.done = False
        self.in_flight: list[Replayed] = []
        self.error: BaseException | None = None
        self.held: list[Callable[[], None]] = []

    def run(self) -> None:
        """Restore; on any thread, once."""
        try:
            restore_operators(self._restore, self._operators, self._info, self._open_state, self._check)
            head = self._operators[0].spec
            written = self._restore.operators.get(head.id)
            if written is not None and written.in_flight:
                reader = InFlightReader(head, self._info, self._open_state, self._check)
                self.in_flight = list(reader.read(written.in_flight))
        except CheckpointVersionError as error:
            self.error = error
        except CheckpointStorageError as error:  # of the place where state is kept, never of the job
            away = StateAwayError(f"the state of {self._info.full_name} can't be read on {gethostname()}: {error}")
            away.__cause__ = error
            self.error = away
        except BaseException as error:  # state is the user's, and unpickled by their own code
            self.error = error
        self.done = True
        self._on_done()

    def give_up(self) -> None:
        """Nobody waits for it any more: it ends at the next chunk; from any thread."""
        self._given_up = True
        self.held.clear()

    def _check(self) -> None:
        if self._given_up:
            raise TaskInterrupt


class Migrating:
    """Restored state becomes of the types that operators have asked for when they were opened; as ``Restoring``.

    Args:
        work: what backends have left to do.
        held: calls that wait until the task is open.
        on_done: called on the thread of ``run``, last.
    """

    def __init__(
        self, work: Sequence[Callable[[], None]], held: list[Callable[[], None]], on_done: Callable[[], None]
    ) -> None:
        self._work, self._on_done, self.held = work, on_done, held
        self._given_up = False
        self.done = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do it; on any thread, once."""
        try:
            for work in self._work:
                if self._given_up:
                    raise TaskInterrupt
                work()
        except BaseException as error:  # steps of migrations are the user's
            self.error = error
        self.done = True
        self._on_done()

    def give_up(self) -> None:
        """Nobody waits for it any more: it ends at the next state; from any thread."""
        self._given_up = True
        self.held.clear()


class RestoreThreads:
    """The threads of a slot that read state, one for each task that does. Tasks do not wait for the end of theirs.

    When the last one has ended, the collector of garbage forgets what is there: it would go through all state again
    and again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[InterruptGuard, threading.Thread] = {}

    def run(self, token: CancelToken, work: Callable[[], None]) -> None:
        """See ``Apart``."""
        guard = InterruptGuard()
        guard.active = token
        thread = threading.Thread(
            target=self._run, args=(guard, work), name=f"firesteel-restore {token.owner}", daemon=True
        )
        with self._lock:
            self._running[guard] = thread
        thread.start()

    def _run(self, guard: InterruptGuard, work: Callable[[], None]) -> None:
        guard.thread = threading.get_ident()
        try:
            work()
            guard.active = None
        except TaskInterrupt:  # it came too late to meet user code
            guard.active = None
        with self._lock:
            del self._running[guard]
            if not self._running:
                gc.freeze()

    def guards(self) -> list[InterruptGuard]:
        """Of those that run."""
        with self._lock:
            return list(self._running)

    def join(self, seconds: float) -> bool:
        """Wait for all, so long in all; returns whether they have ended."""
        deadline = time.monotonic() + seconds
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
