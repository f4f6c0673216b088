"""The thread, with a loop of its own, of a task whose code may block."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from firesteel.core.clock import Clock
from firesteel.core.errors import TaskInterrupt
from firesteel.runtime.loop.interrupts import InterruptGuard
from firesteel.runtime.loop.loop import TaskLoop

logger = logging.getLogger(__name__)


class TaskThread:
    """A thread that runs a loop until ``stop``.

    Attributes:
        loop: loop of the thread.
        guard: notes whose user code the thread is running.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.loop = TaskLoop(clock, on_error=self._on_error)
        self.guard = InterruptGuard()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, first: Callable[[], None]) -> None:
        """Start the thread; ``first`` is called on its loop before anything else."""
        self.loop.call_soon(first)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current pass; may be called from any thread."""
        self.loop.stop()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.guard.thread = threading.get_ident()
        while True:
            try:
                self.loop.run()
                break
            except TaskInterrupt:  # the interrupt came when user code had just ended
                continue
        self.loop.close()

    def _on_error(self, error: BaseException) -> None:
        logger.error("%s: %s", self._thread.name, error, exc_info=error)
