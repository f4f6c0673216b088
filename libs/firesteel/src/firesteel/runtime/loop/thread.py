"""A task whose code may block runs on a loop and a thread of its own."""

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
        loop: of the thread.
        guard: notes what the thread runs.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.loop = TaskLoop(clock, on_error=self._on_error)
        self.guard = InterruptGuard()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, first: Callable[[], None]) -> None:
        """Run the loop; ``first`` is called on it before anything else."""
        self.loop.call_soon(first)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what it is doing; from any thread."""
        self.loop.stop()

    def join(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.guard.thread = threading.get_ident()
        while True:
            try:
                self.loop.run()
                break
            except TaskInterrupt:  # it came too late to meet user code
                continue
        self.loop.close()

    def _on_error(self, error: BaseException) -> None:
        logger.error("%s: %s", self._thread.name, error, exc_info=error)
