"""Restores and migrates state in another thread, so that the task's loop serves other tasks meanwhile.

What is done so is in ``restore`` and in the state backends.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from firesteel.core.errors import TaskInterrupt
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard

Apart = Callable[[CancelToken, Callable[[], None]], None]
"""Runs work for a task, given by its cancel token, in a thread that may wait."""


def at_once(token: CancelToken, work: Callable[[], None]) -> None:
    """Run the work in the calling thread: the ``Apart`` that does not wait."""
    work()


class BackgroundWork:
    """Work on the operators of a task that does not run yet: they are restored, or their state is migrated.

    Nobody else may touch the operators meanwhile.

    Args:
        work: does it; calls its argument between steps, which raises when the task ends.
        then: called with this object on the task's loop, when the work is done.
        on_done: called last, on the thread of ``run``.
        delayed_calls: calls to make when the task is open.

    Attributes:
        done: whether ``run`` is over.
        result: what the work returned.
        error: what ``run`` caught, if it failed.
        then, delayed_calls: the same.
    """

    def __init__(
        self,
        work: Callable[[Callable[[], None]], Any],
        then: Callable[[BackgroundWork], None],
        on_done: Callable[[], None],
        delayed_calls: list[Callable[[], None]],
    ) -> None:
        self._work, self.then, self._on_done, self.delayed_calls = work, then, on_done, delayed_calls
        self._given_up = False
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do the work; called once, on any thread."""
        try:
            self.result = self._work(self._check)
        except BaseException as error:  # raised by the user's code, which unpickles and migrates state
            self.error = error
        self.done = True
        self._on_done()

    def give_up(self) -> None:
        """Let ``run`` end at the next step, because the task ends; may be called from any thread."""
        self._given_up = True
        self.delayed_calls.clear()

    def _check(self) -> None:
        if self._given_up:
            raise TaskInterrupt


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
