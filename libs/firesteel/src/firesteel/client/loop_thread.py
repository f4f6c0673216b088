"""An asyncio loop in a thread of its own, so that it works wherever the program lives: script, notebook, pytest."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from firesteel.core.errors import PeerUnreachableError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers in other threads.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def is_current(self) -> bool:
        """Whether the caller runs in the loop's own thread, which must not wait for it."""
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Schedule a coroutine; cancelling the future cancels it.

        It runs in an empty context, not in the caller's: what it starts may outlive the caller (a notebook's kernel
        finds out by a context variable below which cell a text belongs).

        Raises:
            PeerUnreachableError: the loop was closed, and with it the cluster.
        """
        try:
            return contextvars.Context().run(asyncio.run_coroutine_threadsafe, coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise PeerUnreachableError("the connection to the cluster has been closed") from error

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and wait for it.

        Args:
            coroutine: what to run.
            timeout: seconds; None = no limit.

        Raises:
            TimeoutError: it took longer; it is cancelled.
        """
        future = self.start(coroutine)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, stop the loop and join the thread."""
        if self._loop.is_closed():
            return
        try:
            self.run(_cancel_others(), timeout=5)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
            if not self._thread.is_alive():
                self._loop.close()


async def _cancel_others() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
