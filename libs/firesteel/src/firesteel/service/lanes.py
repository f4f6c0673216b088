"""Lanes of calls: calls to one peer go out in order, one at a time; calls to several peers go side by side."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Spawn(Protocol):
    """Runs a coroutine as a named background task."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None:
        """Run a coroutine; None: the service is stopping, and the coroutine will not run."""


class Lane(Generic[T]):
    """A queue of pieces that are sent to one peer.

    Args:
        name: for logs.
        say: sends a piece; an exception ends the worker.
        spawn: runs the worker, which lives only while there are pieces.
        join: joins two pieces that wait, one behind the other, into one; it returns None if both have to be sent.
    """

    def __init__(
        self,
        name: str,
        say: Callable[[T], Awaitable[None]],
        spawn: Spawn,
        join: Callable[[T, T], T | None] | None = None,
    ) -> None:
        self._name, self._say, self._spawn, self._join = name, say, spawn, join
        self._waiting: deque[T] = deque()
        self._running = False

    @property
    def is_idle(self) -> bool:
        """Whether no piece is under way, and none waits."""
        return not self._running and not self._waiting

    @property
    def is_last(self) -> bool:
        """Whether no piece waits behind the one under way."""
        return not self._waiting

    def add(self, piece: T) -> None:
        """Send a piece after all pieces that were added before."""
        if self._waiting and self._join is not None and (joined := self._join(self._waiting[-1], piece)) is not None:
            self._waiting[-1] = joined
        else:
            self._waiting.append(piece)
        if not self._running:
            self._running = self._spawn(self._work(), self._name) is not None

    def with_next(self, piece: T) -> T:
        """Join a piece that did not arrive with those that wait behind it; the result is sent in its place."""
        while self._waiting and self._join is not None and (joined := self._join(piece, self._waiting[0])) is not None:
            self._waiting.popleft()
            piece = joined
        return piece

    def clear(self) -> None:
        """Drop all pieces that wait."""
        self._waiting.clear()

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._say(self._waiting.popleft())
        finally:
            self._running = False


class Calls(Lane[Callable[[], Awaitable[None]]]):
    """A lane of calls; an exception is logged, and ends only the call that raises it.

    Args:
        name: for logs.
        spawn: runs the worker.
    """

    def __init__(self, name: str, spawn: Spawn) -> None:
        async def perform(call: Callable[[], Awaitable[None]]) -> None:
            try:
                await call()
            except Exception:  # the calls behind this one must not be lost with it
                logger.exception("%s: a call failed", name)

        super().__init__(name, perform, spawn)

    async def done(self) -> None:
        """Wait until all calls are done that were added before."""
        if self.is_idle:
            return
        reached = asyncio.Event()

        async def reach() -> None:
            reached.set()

        self.add(reach)
        await reached.wait()
