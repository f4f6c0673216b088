"""What a failed call says, and how it is made again: whether that is worth it, and after which pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError, RpcError
from firesteel.protocol.message import RpcCode, RpcFault

logger = logging.getLogger(__name__)
T = TypeVar("T")
Failure = RpcError | ProtocolError
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
"""Seconds between repeats: Flink's ``cluster.registration.initial-timeout`` and ``.max-timeout``."""


def may_work_later(error: Failure) -> bool:
    """Whether a call that failed so is worth a repeat.

    The peer was not reached or failed in it, or the clocks of the hosts differ too much at the moment.
    """
    if isinstance(error, RpcFault):
        return error.code in (RpcCode.INTERNAL, RpcCode.UNAUTHORIZED)
    return isinstance(error, PeerUnreachableError)


def is_gone(error: Failure) -> bool:
    """Whether the one who was called for is there no more: another one leads, or nobody there knows of the matter."""
    return isinstance(error, FencedError) or (isinstance(error, RpcFault) and error.code is RpcCode.NOT_FOUND)


async def repeated(
    call: Callable[[], Awaitable[T]],
    goes_on: Callable[[Failure], bool],
    waits: Iterable[float],
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Make a call, again and again, until it is answered.

    Args:
        call: harmless to repeat.
        goes_on: told of each failure; whether the call is made again.
        waits: seconds before each repeat; when there are no more, the last failure stands.
        wait: waits so long, or less.

    Raises:
        RpcError, ProtocolError: how the last try failed.
    """
    for seconds in waits:
        try:
            return await call()
        except (RpcError, ProtocolError) as error:
            if not goes_on(error):
                raise
        await wait(seconds)
    return await call()


class PeerPatience:
    """For how long a peer that does not answer is asked again; stalls of this process do not count.

    Args:
        clock: only ``monotonic`` is used.
        seconds: how long.
        longest_try: seconds that one failed try and the pause after it can take; what goes beyond was a stall.
    """

    def __init__(self, clock: Clock, seconds: float, longest_try: float) -> None:
        self._clock, self._left, self._longest = clock, seconds, longest_try
        self._began: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it was asked for that long."""
        return self._left <= 0

    def next_try(self) -> None:
        """It is asked now."""
        before, self._began = self._began, self._clock.monotonic()
        if before is not None:
            self._left -= min(self._began - before, self._longest)


async def until_it_works(
    what: str,
    call: Callable[[], Awaitable[object]],
    goes_on: Callable[[], bool] = lambda: True,
    unreachable: Callable[[], None] | None = None,
    waits: Iterable[float] | None = None,
) -> bool:
    """Repeat a call while the peer can't be reached or fails in it.

    Args:
        what: for logs.
        call: harmless to repeat.
        goes_on: asked before each repeat.
        unreachable: called each time the peer was not reached.
        waits: seconds before each repeat; default: 100 ms, 200 ms, ... 30 s.

    Returns:
        Whether it worked; False when ``goes_on`` said no, the peer refused it for good, or there are no more waits.
    """

    def failed(error: Failure) -> bool:
        if isinstance(error, PeerUnreachableError) and unreachable is not None:
            unreachable()
        if not may_work_later(error):
            logger.warning("%s: %s", what, error)
            return False
        again = goes_on()
        logger.info("%s: %s%s", what, error, "; it is tried again" if again else "")
        return again

    try:
        await repeated(call, failed, pauses(FIRST_PAUSE, LONGEST_PAUSE) if waits is None else waits)
    except RpcError:
        return False
    return True
