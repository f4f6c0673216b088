"""An event loop of one simulated process: asyncio as it is, with time that the world turns, and no sockets or threads.

Each service of a simulated cluster has a loop of its own, so that one can be stopped (SIGSTOP), fall behind, drift or
be killed in the middle without the others noticing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import threading
from asyncio import events
from collections.abc import Callable
from typing import Any

from firesteel_jobmaster.checkpoints.queue import _THREADS as STORAGE_THREADS
from tests.simulation.blocking import SimulatedThread


class _NothingToSelect:
    """In place of a selector: there are no files."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class ProcessLoop(asyncio.BaseEventLoop):
    """Steps only when told to.

    Args:
        process: whose loop it is.
        time: monotonic seconds of this process.
    """

    def __init__(self, process: Any, time: Callable[[], float]) -> None:
        super().__init__()
        self.process = process
        self._selector = _NothingToSelect()
        self._time = time
        self._dead: set[asyncio.Task[Any]] = set()
        self._signals: dict[int, Callable[[], object]] = {}
        self.errors: list[str] = []
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._time()

    def drop_cancelled(self) -> None:
        """The next timer was cancelled."""
        handle = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]
        handle._scheduled = False
        self._timer_cancelled_count -= 1  # type: ignore[attr-defined]

    def step(self) -> None:
        """Run what is ready now."""
        events._set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            self._thread_id = None  # type: ignore[assignment]
            events._set_running_loop(None)

    def kill(self) -> None:
        """The process is gone, nothing of it runs any more; what is left is for `bury` when the world has ended."""
        self._dead = asyncio.all_tasks(self)
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def bury(self) -> None:
        """Close the coroutines of a dead process; what their finally blocks do has no effect any more."""
        for task in self._dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with contextlib.suppress(BaseException):
                coroutine.close()
        self._dead = set()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """As of a loop of the system; ``signalled`` calls it."""
        self._signals[sig] = functools.partial(callback, *args)

    def signalled(self, sig: int) -> bool:
        """The process gets a signal; whether it handles it."""
        if sig in self._signals:
            self.call_soon(self._signals[sig])
        return sig in self._signals

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Threads would bring real time in: the call is made at once, or where it may block, by a simulated one."""
        if executor is STORAGE_THREADS:
            lingers = self.process.world.rng.random() < 0.5
            return SimulatedThread(self.process, functools.partial(func, *args), lingers).future
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
