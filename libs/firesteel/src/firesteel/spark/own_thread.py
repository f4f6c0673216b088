"""One thread for all calls into the JVM.

py4j ties each Python thread that calls it to a thread of the JVM and a connection of its own. Calls through one thread
need one of each, find Spark's thread-local properties (tags, pool) where they were set, and can be given up on when
the JVM does not answer.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class OwnThread:
    """Runs functions one after the other on a thread of its own; a daemon, so a stuck call does not hold up an exit."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run it there, wait, and return or raise what it did.

        Raises:
            TimeoutError: it has not come back after ``timeout`` seconds; it still runs, or still waits for its turn.
            RuntimeError: the thread was stopped.
        """
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()
        with self._guard:
            if self._closed:
                raise RuntimeError("stopped")
            self._calls.put((future, function))
        return future.result(timeout)

    def stop(self, timeout: float) -> None:
        """End the thread after the calls that wait already, if it gets there within ``timeout`` seconds."""
        with self._guard:
            if not self._closed:
                self._closed = True
                self._calls.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            item = self._calls.get()
            if item is None:
                return
            future, function = item
            try:
                future.set_result(function())
            except BaseException as error:  # the caller gets it
                future.set_exception(error)
            del item, future, function
