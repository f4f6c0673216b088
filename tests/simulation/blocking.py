"""Threads of simulated processes that may block: real ones, of which one at a time runs, and only when the world says.

A call that blocks says so with ``pause``: time goes on then, and whatever else happens in the world may come between
its two sides. So a process can be killed between any two steps of its work, and what it had begun may still arrive.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.world import Process

_FROZEN_POLL = 0.5
_own = threading.local()


class Dropped(BaseException):
    """The process of this thread is gone."""


def pause(seconds: float) -> None:
    """Block for so long; outside of simulated threads nothing happens."""
    thread: SimulatedThread | None = getattr(_own, "thread", None)
    if thread is not None:
        thread.pause(seconds)


class SimulatedThread:
    """Runs a function.

    Args:
        process: whose thread it is.
        func: what it does.
        lingers: when the process is killed, what was asked of the world outside at that moment still happens.
    """

    def __init__(self, process: Process, func: Callable[[], Any], lingers: bool) -> None:
        self.process, self._func, self._lingers = process, func, lingers
        self.future: asyncio.Future[Any] = process.loop.create_future()
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._seconds = 0.0
        self._over = self._drop = False
        self._thread = threading.Thread(target=self._run, name="simulated", daemon=True)
        self._thread.start()
        process.world.threads.add(self)
        process.world.after(0.0, self._resume)

    def pause(self, seconds: float) -> None:
        """On the thread itself."""
        self._seconds = seconds
        self._back.release()
        self._go.acquire()
        if self._drop:
            raise Dropped

    def end(self) -> None:
        """The world has ended."""
        if not self._over:
            self._drop = True
            self._step()

    def _run(self) -> None:
        _own.thread = self
        self._go.acquire()
        self._outcome: tuple[Any, Exception | None] = None, None
        try:
            if not self._drop:
                self._outcome = self._func(), None
        except Dropped:
            pass
        except Exception as error:
            self._outcome = None, error
        self._over = True
        self._back.release()

    def _step(self) -> None:
        self._go.release()
        self._back.acquire()
        if self._over:
            self._thread.join()
            self.process.world.threads.discard(self)

    def _resume(self) -> None:
        process = self.process
        if self._over:
            return
        if not process.alive:
            self._drop, self._lingers = not self._lingers, False
        elif process.frozen:
            process.world.after(_FROZEN_POLL, self._resume)
            return
        self._step()
        if not self._over:
            process.world.after(self._seconds, self._resume)
        elif process.alive:
            process.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        result, error = self._outcome
        if self.future.done():  # nobody waits any more
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
