"""Blocking calls of event loops: each kind has a few threads of its own, and a deadline.

The policy. An event loop of a service never blocks, and no kind of call can hold up another one:

1. What may block (a file system, an object store, a coordination service, user files) runs in the ``CallPool`` of its
   kind, never on the loop and never in the loop's default executor. The linter forbids ``asyncio.to_thread``; a test
   fails where ``run_in_executor`` gets no pool. Only look-ups of host names are left to the default executor:
   asyncio puts them there.
2. A pool is bounded. When its threads hang, calls of its kind fail at their deadline; all others go on.
3. A call past its deadline is given up with ``TimeoutError``, which is an ``OSError``: whoever can repeat the call
   repeats it as after any other failure of the infrastructure. A call that no thread had begun is never made. One that
   hangs in the kernel can't be ended: its thread is left to itself, and its call must be one that may be done twice.
4. Threads are daemons: a process ends whatever its calls do.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
DEADLINE: Final = 60.0
"""Seconds for a call of a file system or a store, as for a piece of work of checkpoints."""
THREADS: Final = 4
"""Threads of a pool: so many calls of one kind may hang before the others of that kind wait for them."""
_IDLE: Final = 30.0
"""A thread without work for so many seconds ends."""


class PoolThread(threading.Thread):
    """A thread of a ``CallPool``, which ends when it has had nothing to do for a while."""


class CallPool(Executor):
    """Threads for calls of one kind.

    Args:
        kind: of the calls; names the threads.
        threads: most at a time.
        deadline: seconds for a call from its order to its end; None: as long as it takes.
    """

    def __init__(self, kind: str, threads: int = THREADS, deadline: float | None = DEADLINE) -> None:
        self.kind, self.deadline = kind, deadline
        self._threads = threads
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[threading.Thread] = set()
        self._idle = 0
        """Threads that wait for work, less the calls that wait for a thread."""
        self._closed = False

    async def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function in a thread; context variables are those of the caller.

        Raises:
            TimeoutError: the deadline has passed; a call that had begun may end yet.
            RuntimeError: the pool is closed.
        """
        work = functools.partial(contextvars.copy_context().run, function, *arguments, **named)
        future = asyncio.get_running_loop().run_in_executor(self, work)
        timeout = asyncio.timeout(self.deadline)
        try:
            async with timeout:
                return await future
        except TimeoutError as error:
            if not timeout.expired():
                raise  # the function's own
            name = getattr(function, "__qualname__", type(function).__name__)
            text = f"{self.kind}: {name} has not returned within {self.deadline:g} s, and was given up"
            raise TimeoutError(text) from error

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self.kind} takes no more calls")
            self._calls.put((future, functools.partial(fn, *args, **kwargs)))
            self._idle -= 1
            if self._idle < 0 and len(self._alive) < self._threads:
                self._idle += 1
                thread = PoolThread(target=self._make_calls, name=self.kind, daemon=True)
                self._alive.add(thread)
                try:
                    thread.start()
                except RuntimeError as error:
                    self._alive.discard(thread)
                    self._idle -= 1
                    if "shutdown" not in str(error) and not self._alive:  # the system has no more threads
                        future.cancel()  # it stays in the queue: a thread that starts later must not make this call
                        raise
            if self._alive:
                return future
        # Python 3.12.0 to 3.12.2 start no thread once the main one has ended. What stops an embedded cluster is called
        # right here then, one call after the other and without a deadline.
        self._make_calls(until_empty=True)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; those that wait are done, or cancelled. With ``wait`` this returns when they are."""
        with self._lock:
            self._closed = True
            threads = list(self._alive)
            with suppress(queue.Empty):
                while cancel_futures:
                    if (call := self._calls.get_nowait()) is not None:
                        call[0].cancel()
                        call[0].set_running_or_notify_cancel()
            for _ in threads:
                self._calls.put(None)
        if wait:
            for thread in threads:
                thread.join()

    def _make_calls(self, *, until_empty: bool = False) -> None:
        while True:
            try:
                call = self._calls.get(block=not until_empty, timeout=_IDLE)
            except queue.Empty:
                if until_empty:
                    return
                with self._lock:
                    if not self._calls.empty():  # it came just now
                        continue
                    self._idle -= 1
                    self._alive.discard(threading.current_thread())
                    return
            if call is None:
                with self._lock:
                    self._alive.discard(threading.current_thread())
                return
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del call, future, function  # what they hold is not kept until the next call
            with self._lock:
                self._idle += 1


_CLOSINGS: Final = CallPool("closing", deadline=None)


async def close_in_time(
    close: Callable[[], object], name: str, pool: CallPool = _CLOSINGS, seconds: float = 5.0
) -> None:
    """Close something that may hang, which must not keep a process alive.

    Args:
        close: closes it.
        name: of it, for the log.
        pool: makes the call; a pool of one thread makes it after all calls before it.
        seconds: after them it is left as it is.
    """
    try:
        async with asyncio.timeout(seconds):
            await pool.call(close)
    except TimeoutError:
        logger.warning("%s could not be closed in time, and is left as it is", name)
