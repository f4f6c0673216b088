"""Interrupts user code of cancelled tasks: raises an exception inside it, whatever it is doing.

On the main thread a signal does it: ``time.sleep`` and a blocked ``recv`` return from the system call, and the handler
raises. It raises only while a guard says that user code runs, so the runtime's own bookkeeping is never torn. In other
threads the interpreter raises (``PyThreadState_SetAsyncExc``) as soon as the thread runs Python code again. Code that
never comes back to the interpreter (a loop in C) ends with its process, which the TaskManager kills.
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
    """Tells a task to end.

    Attributes:
        cancelled: set once, from any thread.
        owner: execution id of the task, for logs.
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
    """Notes for one thread whose user code it is running.

    Attributes:
        active: token of the task whose user code is running; None = no user code is running.
        thread: identity of the thread; None = it was not started.
    """

    __slots__ = ("active", "thread")

    def __init__(self) -> None:
        self.active: CancelToken | None = None
        self.thread: int | None = None


class Interrupter:
    """Interrupts user code of cancelled tasks. One for each slot process; ``install`` on the main thread."""

    def __init__(self) -> None:
        self.main = InterruptGuard()
        """The guard of the main thread."""
        self._previous: Any = None
        self._installed = False

    def install(self) -> None:
        """Install the signal handler; on the main thread only."""
        self.main.thread = threading.get_ident()
        self._previous = signal.signal(INTERRUPT_SIGNAL, self._on_signal)
        self._installed = True

    def uninstall(self) -> None:
        """Restore the previous signal handler. Idempotent."""
        if self._installed:
            self._installed = False
            # Without a previous handler the signal is ignored: by default a late one would kill the process.
            signal.signal(INTERRUPT_SIGNAL, self._previous or signal.SIG_IGN)

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
