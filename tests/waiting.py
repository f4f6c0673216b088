"""Waiting for what no event tells of. What does not come true in time is a time-out, and known as one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 100.0
"""Seconds after which a test gives up waiting for something that must come true."""


class NotInTimeError(AssertionError):
    """Something did not come true in time: the product hangs, or the machine was too slow for the test."""


def wait_until(condition: Callable[[], Any], what: str | Callable[[], str] = "", seconds: float = PATIENCE) -> Any:
    """The condition's first true value.

    Args:
        condition: what has to hold.
        what: its words, or what finds them out when it did not come true.
        seconds: for which it is waited.

    Raises:
        NotInTimeError: it did not come true.
    """
    began = looked = time.monotonic()
    while not (value := condition()):
        if time.monotonic() > began + seconds:
            raise _not_in_time(what, seconds)
        time.sleep(_pause(began, looked))
        looked = time.monotonic()
    return value


def _pause(began: float, looked: float) -> float:
    """Seconds until the next look at a condition.

    Conditions ask services or look through ``/proc``: looked at all the time they take a good part of the cores that
    those need to come true. So expensive ones are looked at less often, and so are those that take long anyway.

    Args:
        began: the time of the first look.
        looked: that of the last one, which has just ended.
    """
    now = time.monotonic()
    cost = now - looked
    return min(max(0.02, 4 * cost, (now - began) / 25), max(0.1, cost))


def the_one_left(find: Callable[[], Iterable[T]], what: str) -> T:
    """What is alone at last, and still is a second later: the checkpoint that an ended job has left, say. One that was
    on its way into the store when the job ended may still take the place of the one before."""
    looks: list[list[T]] = [[], []]

    def settled() -> bool:
        looks[0] = list(find())
        time.sleep(1.0)
        looks[1] = list(find())
        return looks[0] == looks[1] and len(looks[0]) == 1

    wait_until(settled, what)
    return looks[1][0]


async def eventually(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE) -> Any:
    """`wait_until` for tests that run on the loop."""
    began = looked = time.monotonic()
    while not (value := condition()):
        if time.monotonic() > began + seconds:
            raise _not_in_time(what, seconds)
        await asyncio.sleep(_pause(began, looked))
        looked = time.monotonic()
    return value


def _not_in_time(what: str | Callable[[], str], seconds: float) -> NotInTimeError:
    words = what if isinstance(what, str) else what()
    return NotInTimeError(f"did not come true within {seconds:g} s: {words or 'the condition of the test'}")
