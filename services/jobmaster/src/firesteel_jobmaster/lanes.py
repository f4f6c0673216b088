"""Calls to one party go out one after the other, in their order; calls to several parties go side by side."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from firesteel.core.errors import FencedError, PeerUnreachableError
from firesteel.protocol.message import RpcFault
from firesteel.rpc import may_work_later

logger = logging.getLogger(__name__)
FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0
"""Seconds between repeats: Flink's ``cluster.registration.initial-timeout`` and ``.max-timeout``."""

Call = Callable[[], Awaitable[None]]


class Spawn(Protocol):
    """Runs a coroutine in the background, held and named."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """None: the service is stopping, the coroutine will not run."""


class Lane:
    """A queue of calls to one party.

    Args:
        name: for logs.
        spawn: runs the worker, which lives only while there is something to do.
    """

    def __init__(self, name: str, spawn: Spawn) -> None:
        self._name, self._spawn = name, spawn
        self._calls: deque[tuple[str, Call]] = deque()
        self._running = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        return not self._running and not self._calls

    def add(self, what: str, call: Call) -> None:
        """Do this after all that was added before. An exception of ``call`` is logged and ends only that call."""
        self._calls.append((what, call))
        if not self._running:
            self._running = self._spawn(self._work(), self._name) is not None

    async def done(self) -> None:
        """Wait until all is done that was added before."""
        if not self._running and not self._calls:
            return
        reached = asyncio.Event()

        async def reach() -> None:
            reached.set()

        self.add("the end", reach)
        await reached.wait()

    async def _work(self) -> None:
        try:
            while self._calls:
                what, call = self._calls.popleft()
                try:
                    await call()
                except Exception:  # the calls behind it must not be lost with it
                    logger.exception("%s: %s failed", self._name, what)
        finally:
            self._running = False


async def until_it_works(
    what: str, call: Call, go_on: Callable[[], bool], unreachable: Callable[[], None] | None = None
) -> bool:
    """Repeat a call while the peer can't be reached or fails in it, 100 ms, 200 ms, ... 30 s apart.

    Args:
        what: for logs.
        call: harmless to repeat.
        go_on: asked before each repeat.
        unreachable: called each time the peer was not reached.

    Returns:
        Whether it worked; False when ``go_on`` said no, or the peer refused it for good.
    """
    delay = FIRST_DELAY
    while True:
        try:
            await call()
            return True
        except (PeerUnreachableError, FencedError, RpcFault) as error:
            if isinstance(error, PeerUnreachableError) and unreachable is not None:
                unreachable()
            if not may_work_later(error):
                logger.warning("%s: %s", what, error)
                return False
            if not go_on():
                return False
            logger.info("%s: %s; next try in %g s", what, error, delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)
