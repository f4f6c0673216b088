"""Threads that may hang without anybody waiting for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class DaemonThreads(Executor):
    """A thread for each call, which does not keep the process alive.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``Executor``."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future


class DaemonThread(Executor):
    """One thread for all calls, one after the other, which does not keep the process alive.

    Args:
        name: of the thread, which begins with the first call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``Executor``."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._name} takes no more calls")
            self._calls.put(run)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those that wait are done. With ``wait`` this returns when they are."""
        with self._lock:
            self._closed = True
            self._calls.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while (run := self._calls.get()) is not None:
            run()
