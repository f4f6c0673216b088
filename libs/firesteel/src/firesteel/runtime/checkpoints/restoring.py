"""Reads and decodes state in another thread, so that the task's loop serves other tasks meanwhile."""

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
"""Runs work for a task, given by its cancel token, in a thread that may wait."""


def at_once(token: CancelToken, work: Callable[[], None]) -> None:
    """Run the work in the calling thread: the ``Apart`` that does not wait."""
    work()


class Restoring:
    """Restores the operators of one task before any is opened. Nobody else may touch them meanwhile.

    Args:
        restore: state assigned to the task.
        operators: operators of its chain.
        info: description of the task.
        open_state: opens state in the checkpoint storage.
        on_done: called last, on the thread of ``run``.

    Attributes:
        done: whether ``run`` is over.
        error: what ``run`` caught, if it failed.
        in_flight: batches that the task has to replay.
        delayed_calls: calls to make when the task is open.
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
        self.delayed_calls: list[Callable[[], None]] = []

    def run(self) -> None:
        """Restore the operators; called once, on any thread."""
        try:
            restore_operators(self._restore, self._operators, self._info, self._open_state, self._check)
            head = self._operators[0].spec
            written = self._restore.operators.get(head.id)
            if written is not None and written.in_flight:
                reader = InFlightReader(head, self._info, self._open_state, self._check)
                self.in_flight = list(reader.read(written.in_flight))
        except CheckpointVersionError as error:
            self.error = error
        except CheckpointStorageError as error:  # trouble of the storage, which the job waits for; not its own failure
            away = StateAwayError(f"the state of {self._info.full_name} can't be read on {gethostname()}: {error}")
            away.__cause__ = error
            self.error = away
        except BaseException as error:  # raised by the user's code, which unpickles the state
            self.error = error
        self.done = True
        self._on_done()

    def give_up(self) -> None:
        """Let ``run`` end at the next chunk, because the task ends; may be called from any thread."""
        self._given_up = True
        self.delayed_calls.clear()

    def _check(self) -> None:
        if self._given_up:
            raise TaskInterrupt


class Migrating:
    """Migrates restored state to the types that operators declared when they were opened; used as ``Restoring`` is.

    Args:
        work: migrations that state backends have put off.
        delayed_calls: calls to make when the task is open.
        on_done: called last, on the thread of ``run``.
    """

    def __init__(
        self, work: Sequence[Callable[[], None]], delayed_calls: list[Callable[[], None]], on_done: Callable[[], None]
    ) -> None:
        self._work, self._on_done, self.delayed_calls = work, on_done, delayed_calls
        self._given_up = False
        self.done = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the migrations; called once, on any thread."""
        try:
            for work in self._work:
                if self._given_up:
                    raise TaskInterrupt
                work()
        except BaseException as error:  # raised by the user's code, which migrates values
            self.error = error
        self.done = True
        self._on_done()

    def give_up(self) -> None:
        """Let ``run`` end at the next state, because the task ends; may be called from any thread."""
        self._given_up = True
        self.delayed_calls.clear()


class RestoreThreads:
    """The threads of a slot that read state, one for each task that restores. Tasks do not wait for their end.

    When the last thread has ended, the garbage collector is told to ignore all objects (``gc.freeze``): otherwise it
    would traverse the whole restored state again and again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[InterruptGuard, threading.Thread] = {}

    def run(self, token: CancelToken, work: Callable[[], None]) -> None:
        """Run work for a task in a new thread (an ``Apart``)."""
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
        except TaskInterrupt:  # the interrupt came when user code had just ended
            guard.active = None
        with self._lock:
            del self._running[guard]
            if not self._running:
                gc.freeze()

    def guards(self) -> list[InterruptGuard]:
        """The interrupt guards of the running threads."""
        with self._lock:
            return list(self._running)

    def join(self, seconds: float) -> bool:
        """Wait for all threads, for this time in total; returns whether they have ended."""
        deadline = time.monotonic() + seconds
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
