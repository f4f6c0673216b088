"""Getting a cancelled task out of user code: an exception raised inside it, whatever it is doing.

On the main thread a signal does it: ``time.sleep`` and a blocked ``recv`` return from the system call, the handler runs
and raises. It raises only while a guard says that user code runs, so the runtime's own bookkeeping is never torn. In
other threads the interpreter raises as soon as the thread runs Python code again. Code that never comes back to the
interpreter (a loop in C) ends with its process, which the TaskManager kills.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from types import FrameType
from typing import Any, Final

from firesteel.core.errors import TaskInterrupt

INTERRUPT_SIGNAL: Final = signal.SIGUSR1
FIRST_INTERRUPT_SECONDS: Final = 0.1
"""A cancelled task that has not ended by itself after this time is interrupted."""


class CancelToken:
    """Whether a task is to end. Set once, from any thread.

    Attributes:
        owner: names the task, for logs.
    """

    __slots__ = ("cancelled", "owner")

    def __init__(self, owner: str = "") -> None:
        self.cancelled = False
        self.owner = owner

    def check(self) -> None:
        """Raises:
        TaskInterrupt: the task was cancelled.
        """
        if self.cancelled:
            raise TaskInterrupt


class InterruptGuard:
    """One thread's note of whose user code it runs.

    Attributes:
        active: the token of the task whose user code is running; None = none is.
        thread: identity of the thread; None = not started.
    """

    __slots__ = ("active", "thread")

    def __init__(self) -> None:
        self.active: CancelToken | None = None
        self.thread: int | None = None


class Interrupter:
    """Interrupts user code of cancelled tasks. One for each slot process; ``install`` on the main thread."""

    def __init__(self) -> None:
        self.main = InterruptGuard()
        """Of the main thread."""
        self._previous: Any = None
        self._installed = False

    def install(self) -> None:
        """Take the signal; on the main thread only."""
        self.main.thread = threading.get_ident()
        self._previous = signal.signal(INTERRUPT_SIGNAL, self._on_signal)
        self._installed = True

    def uninstall(self) -> None:
        """Give the signal back. Idempotent."""
        if self._installed:
            self._installed = False
            signal.signal(INTERRUPT_SIGNAL, self._previous or signal.SIG_IGN)  # a late one must not kill

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        active = self.main.active
        if active is not None and active.cancelled:
            raise TaskInterrupt

    def interrupt(self, guard: InterruptGuard) -> None:
        """Raise ``TaskInterrupt`` in the guard's thread if it runs user code of a cancelled task; from any thread."""
        active, thread = guard.active, guard.thread
        if active is None or not active.cancelled or thread is None:
            return
        if guard is self.main:
            if self._installed:
                signal.pthread_kill(thread, INTERRUPT_SIGNAL)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TaskInterrupt))
