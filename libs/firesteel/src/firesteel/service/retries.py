"""Repeats of failed calls and of work on storage: whether a repeat is worth it, and after which pauses."""

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
    """Whether a repeat of a call that failed so may work.

    That is so if the peer was not reached, if it failed itself, or if the clocks of the hosts differ too much for now.
    """
    if isinstance(error, RpcFault):
        return error.code in (RpcCode.INTERNAL, RpcCode.UNAUTHORIZED)
    return isinstance(error, PeerUnreachableError)


def is_gone(error: Failure) -> bool:
    """Whether the called one is gone: another one leads, or the process at its address does not know it."""
    return isinstance(error, FencedError) or (isinstance(error, RpcFault) and error.code is RpcCode.NOT_FOUND)


async def repeated(
    call: Callable[[], Awaitable[T]],
    goes_on: Callable[[Failure], bool],
    waits: Iterable[float],
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Make a call until it is answered.

    Args:
        call: harmless to repeat.
        goes_on: called with each failure; returns whether the call is made again.
        waits: seconds before each repeat; when there are no more, the failure of the last try is raised.
        wait: waits for so many seconds, or less.

    Raises:
        RpcError, ProtocolError: failure of the last try.
    """
    for seconds in waits:
        try:
            return await call()
        except (RpcError, ProtocolError) as error:
            if not goes_on(error):
                raise
        await wait(seconds)
    return await call()


async def until_storage_answers(
    problem: str,
    attempt: Callable[[], Awaitable[T]],
    waits: Iterable[float],
    failures: type[Exception] | tuple[type[Exception], ...] = OSError,
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Repeat work on storage until it works: a disk that is full, or a service that is away, ends nothing.

    Args:
        problem: what does not work, as a sentence for logs.
        attempt: harmless to repeat.
        waits: seconds before each repeat, without end.
        failures: what is worth a repeat; other errors are raised.
        wait: waits for so many seconds, or less.

    Raises:
        FencedError: another process leads.
    """
    for seconds in waits:
        try:
            return await attempt()
        except FencedError:  # what is stored belongs to another process by now
            raise
        except failures as error:
            logger.error("%s: %s; next try in %g s", problem, error, seconds)
        await wait(seconds)
    raise AssertionError("waits never end")


class PeerPatience:
    """Bounds the time for which a peer that does not answer is called again; stalls of this process do not count.

    Args:
        clock: only ``monotonic`` is used.
        seconds: the bound.
        longest_try: seconds that a failed try and the pause after it can take; time beyond them was a stall.
    """

    def __init__(self, clock: Clock, seconds: float, longest_try: float) -> None:
        self._clock, self._left, self._longest = clock, seconds, longest_try
        self._began: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._left <= 0

    def next_try(self) -> None:
        """The peer is called now."""
        last_try, self._began = self._began, self._clock.monotonic()
        if last_try is not None:
            self._left -= min(self._began - last_try, self._longest)


async def until_it_works(
    subject: str,
    call: Callable[[], Awaitable[object]],
    goes_on: Callable[[], bool] = lambda: True,
    unreachable: Callable[[], None] | None = None,
    waits: Iterable[float] | None = None,
) -> bool:
    """Repeat a call while the peer can't be reached or fails in it.

    Args:
        subject: of the call, for logs.
        call: harmless to repeat.
        goes_on: called before each repeat; returns whether to go on.
        unreachable: called each time the peer was not reached.
        waits: seconds before each repeat; default: 100 ms, 200 ms, ... 30 s.

    Returns:
        Whether the call worked; False if ``goes_on`` returned False, the peer refused for good, or ``waits`` ended.
    """

    def failed(error: Failure) -> bool:
        if isinstance(error, PeerUnreachableError) and unreachable is not None:
            unreachable()
        if not may_work_later(error):
            logger.warning("%s: %s", subject, error)
            return False
        again = goes_on()
        logger.info("%s: %s%s", subject, error, "; it is tried again" if again else "")
        return again

    try:
        await repeated(call, failed, pauses(FIRST_PAUSE, LONGEST_PAUSE) if waits is None else waits)
    except RpcError:
        return False
    return True
