"""Leaders from the view of a service: following the leader of another component, and becoming leader oneself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import ConfigurationError, FencedError
from firesteel.core.files import MAY_PASS
from firesteel.ha.cells import AwayError
from firesteel.ha.services import HighAvailabilityServices, Leader, LeaderRetrieval, Leadership
from firesteel.service.background import first_of
from firesteel.service.retries import until_storage_answers

logger = logging.getLogger(__name__)
CAMPAIGN_SECONDS: Final = 0.5
"""Seconds between two campaigns of a process that waits for its turn."""
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks of a leader that it still leads."""
_LONGEST_PAUSE: Final = 10.0
_CAMPAIGNS: Final = CallPool("campaigns", threads=16, deadline=None)
"""Threads without a deadline: a leadership that was won after it would have no owner."""
LEADERSHIP: Final = CallPool("leadership", threads=16, deadline=10.0)
"""Threads for the leaderships of all components of a process. A check has a deadline: a process that can't find out in
time whether it leads has to act on that."""
TAKEOVER_SECONDS: Final = 2.0
"""Seconds that the process of a former leader may take to end, where no other process is expected to lead."""


class PeerLeader:
    """The known leader of a component. ``start`` has to come first, on the event loop.

    Args:
        retrieval: says who leads.
        component: see ``firesteel.ha.retrieval``.
        changed: called on the event loop when another leader becomes known.
    """

    def __init__(self, retrieval: LeaderRetrieval, component: str, changed: Callable[[], None] = lambda: None) -> None:
        self._retrieval, self._component, self._changed = retrieval, component, changed
        self.leader: Leader | None = None
        """The last leader that has announced its address; it may be gone."""
        self._end: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to follow; the present leader is known when this returns.

        Raises:
            ConfigurationError: the services that elect leaders can't be used.
        """
        self.leader = self._retrieval.leader(self._component)
        self._loop = asyncio.get_running_loop()
        self._end = self._retrieval.watch(self._component, self._heard)

    def stop(self) -> None:
        """Stop following the leader. Idempotent."""
        self._loop = None
        if self._end is not None:
            self._end()
            self._end = None

    @property
    def address(self) -> str:
        """Base URL of the leader; empty where none is known. A call to it then fails as if the peer did not answer."""
        return "" if self.leader is None else self.leader.address

    @property
    def elected(self) -> Leader | None:
        """The leader, if it was elected; None where leaders are configured, or none is known."""
        leader = self.leader
        return leader if leader is not None and leader.epoch and leader.address else None

    def _heard(self, leader: Leader | None) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is loop:
            self._set(leader)
            return
        try:
            loop.call_soon_threadsafe(self._set, leader)
        except RuntimeError:  # the loop is closed
            self._loop = None

    def _set(self, leader: Leader | None) -> None:
        if self._loop is None or leader is None or not leader.address or leader == self.leader:
            return  # a leader that is gone stays known until the next one announces its address
        logger.info("%s is led at %s (epoch %d)", self._component, leader.address, leader.epoch)
        self.leader = leader
        self._changed()


class Candidate:
    """A service that wants to lead a component.

    Args:
        services: where leaders are elected.
        component: see ``firesteel.ha.retrieval``.
    """

    def __init__(self, services: HighAvailabilityServices, component: str) -> None:
        self._services, self._component = services, component
        self._leadership: Leadership | None = None
        self.is_standby = False
        """Whether it waits while another process leads, or for storage that it needs to lead."""
        self.has_stood_by = False
        """Whether it has waited before it led."""
        self._freed = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None

    async def lead(self, stands_by: Callable[[], Awaitable[None]] | None = None) -> Leadership:
        """Lead as soon as no other process does. Where no stand-by is expected, a leader that stays is a mistake.

        Args:
            stands_by: called once, when this process begins to wait for its turn.

        Raises:
            ConfigurationError: another process leads and does not end.
            OSError: the election can't be read. A process that waits for its turn goes on waiting then. So does any
                process where the coordination service is away (``AwayError``), or a disk is (``MAY_PASS``).
        """
        waited, stands = 0.0, False
        while True:
            try:
                leadership = await _CAMPAIGNS.call(self._services.campaign, self._component)
            except OSError as error:
                if not self.is_standby and not isinstance(error, AwayError) and error.errno not in MAY_PASS:
                    raise
                logger.warning("who leads the %s can't be read, it is tried again: %s", self._component, error)
                self.is_standby = True
                await asyncio.sleep(CAMPAIGN_SECONDS)
                continue
            if leadership is not None:
                break
            if not self._services.has_standbys and waited >= TAKEOVER_SECONDS:
                raise ConfigurationError(
                    f"Another process leads the {self._component} of this cluster: one cluster has one; set "
                    "firesteel.cluster.directory (or high-availability.cluster-id) to another value for another one."
                )
            if not stands and self._services.has_standbys:
                logger.info("another process leads %s: this one waits for its turn", self._component)
                stands = self.is_standby = self.has_stood_by = True
                if stands_by is not None:
                    await stands_by()
            if stands and self._services.campaign_seconds > CAMPAIGN_SECONDS:
                await self._until_free(self._services.campaign_seconds)
            else:
                await asyncio.sleep(CAMPAIGN_SECONDS)
            waited += CAMPAIGN_SECONDS
        self._stop_watch()
        self.is_standby, self._leadership = False, leadership
        logger.info("this process leads %s (epoch %d)", self._component, leadership.epoch)
        return leadership

    async def _until_free(self, seconds: float) -> None:
        """Wait for so many seconds, or until the election says that nobody leads."""
        loop, freed = asyncio.get_running_loop(), self._freed

        def leader_changed(leader: Leader | None) -> None:
            if leader is None or not leader.address:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(freed.set)

        if self._unwatch is None:
            try:
                self._unwatch = await _CAMPAIGNS.call(self._services.watch, self._component, leader_changed)
            except OSError as error:
                logger.info("who leads the %s can't be followed for now: %s", self._component, error)
        await first_of(freed.wait(), asyncio.sleep(seconds))
        # Once for each change: a leader without an address yet would else wake this process all the time.
        freed.clear()

    def _stop_watch(self) -> None:
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()

    async def announce(self, address: str, token: str) -> None:
        """Announce the address of this leader; a full disk, or a service that is away, is waited for.

        Raises:
            FencedError: this process does not lead any more.
        """

        async def announce() -> None:
            if self._leadership is not None:
                await LEADERSHIP.call(self._leadership.announce, address, token)

        problem = f"where the {self._component} is can't be stored"
        await until_storage_answers(problem, announce, pauses(CAMPAIGN_SECONDS, _LONGEST_PAUSE))

    async def check(self) -> None:
        """Check that this process still leads.

        Raises:
            FencedError: another process leads, or may lead.
            OSError: the election can't be read for now.
        """
        if (leadership := self._leadership) is not None:
            await LEADERSHIP.call(leadership.check)

    async def hold(self) -> None:
        """Check from time to time that this process still leads; returns once it has given the leadership up.

        Raises:
            FencedError: another process leads.
        """
        while (leadership := self._leadership) is not None:
            try:
                await LEADERSHIP.call(leadership.poll)
            except FencedError as error:
                if self._leadership is None:
                    return
                raise FencedError(f"this process leads the {self._component} no more: {error}") from error
            except OSError as error:
                logger.warning("whether this process still leads the %s can't be read: %s", self._component, error)
            await asyncio.sleep(CHECK_SECONDS)

    async def give_back(self) -> None:
        """Give the leadership up and wait for another turn, since this process could not do yet what a leader does."""
        await self.give_up()
        self.is_standby = True

    async def give_up(self) -> None:
        """Give the leadership up. Idempotent."""
        self._stop_watch()
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            try:
                await LEADERSHIP.call(leadership.release)
            except OSError as error:  # the leadership ends with this process anyway
                logger.warning("the leadership of the %s can't be given back: %s", self._component, error)
