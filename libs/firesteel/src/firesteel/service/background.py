"""Background tasks with a name and an owner, whose errors are never lost; and waiting for the first of several."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Holds the background tasks of one owner.

    Args:
        owner: named in logs.
        on_failure: called with the task's name and its exception when a task ends by one.
    """

    def __init__(self, owner: str, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._owner, self._on_failure = owner, on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """The running tasks, in the order of their start."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def names(self) -> list[str]:
        """Names of the tasks that run."""
        return sorted(task.get_name() for task in self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run a coroutine; returns None after ``close``, and the coroutine never runs."""
        if self._closed:
            coroutine.close()
            logger.debug("%s: %s was not started: the owner is stopping", self._owner, name)
            return None
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._owner}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(task.get_name(), error)

    async def drain(self, seconds: float) -> bool:
        """Wait until no task runs, or for so many seconds; returns whether none runs. Tasks may start meanwhile."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        current = asyncio.current_task()
        while running := [t for t in self._tasks if t is not current]:
            seconds_left = deadline - loop.time()
            if seconds_left <= 0:
                return False
            await asyncio.wait(running, timeout=seconds_left)
        return True

    async def close(self) -> None:
        """Start no more tasks, cancel those that run, and wait for their ends. Idempotent."""
        self._closed = True
        current = asyncio.current_task()
        while running := [t for t in self._tasks if t is not current]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of several coroutines is done, and cancel the others."""
    tasks = [asyncio.get_running_loop().create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def in_slices(work: Generator[None, None, T]) -> T:
    """Do long work in slices, between which the event loop has its turn; returns the result of the generator."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
