"""How the shell speaks with the Dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.service.lanes import Lane, Spawn
from firesteel.service.retries import FIRST_PAUSE, LONGEST_PAUSE, Failure, may_work_later, repeated

logger = logging.getLogger(__name__)
END_KEPT = 3600.0
"""Seconds for which a JobMaster offers the end of its job to Dispatchers that do not answer, or lead no more."""
_News = m.JobStateChanged | m.JobFinished


class DispatcherReporter:
    """Reports the job's states in their order; one that was overtaken by a newer one is left out.

    What does not arrive is repeated. A Dispatcher that leads no more gets nothing further: the next one adopts the job.

    Args:
        gateway: of the Dispatcher.
        job_id: of the job.
        token: of the JobMaster.
        clock: ages the end.
        spawn: runs the worker.
    """

    def __init__(self, gateway: DispatcherGateway, job_id: str, token: str, clock: Clock, spawn: Spawn) -> None:
        self.gateway, self._job_id, self._token, self._clock = gateway, job_id, token, clock
        self._lane: Lane[_News] = Lane("reports to the Dispatcher", self._tell, spawn, lambda _, newer: newer)
        self._end: m.JobFinished | None = None
        self._give_up_at = 0.0
        self._pause = FIRST_PAUSE
        self._persistent, self._silent = True, False
        self._news = asyncio.Event()
        self.heard = clock.monotonic()
        """When a Dispatcher was last reached."""
        self.acknowledged = asyncio.Event()
        """The end needs no more reports: a Dispatcher has taken or refused it, or it was given up."""
        self.is_end_stored = False
        """The Dispatcher has taken the end: no other JobMaster will go on with the job."""

    async def end_is_stored(self) -> bool:
        """Wait until the end needs no more reports; returns whether the Dispatcher has taken it."""
        await self.acknowledged.wait()
        return self.is_end_stored

    def state(self, state: str, timestamps: Mapping[str, int]) -> None:
        """Report that the job has entered a state."""
        if self._end is None:
            self._add(m.JobStateChanged(self._job_id, state, timestamps, self._token))

    def end(self, archive: Mapping[str, Any]) -> None:
        """Report the end of the job until the Dispatcher knows; its archive replaces reports of states."""
        self._end = m.JobFinished(self._job_id, archive, self._token)
        self._give_up_at = self._clock.monotonic() + END_KEPT
        self._add(self._end)

    def _add(self, news: _News) -> None:
        self._lane.add(news)
        self._news.set()

    def adopt(self, gateway: DispatcherGateway) -> None:
        """Another Dispatcher leads: reports that wait go to it, at once."""
        self.gateway, self._pause = gateway, FIRST_PAUSE
        self._news.set()

    def hurry(self) -> None:
        """The host stops: reports that wait are tried once more, and then given up."""
        self._persistent = False
        self._news.set()

    def silence(self) -> None:
        """The JobMaster has crashed: nothing that it believes is reported any more."""
        self._persistent, self._silent, self._end = False, True, None
        self._lane.clear()
        self._news.set()

    async def _tell(self, news: _News) -> None:
        told_gateway = self.gateway

        async def tell() -> None:
            nonlocal news, told_gateway
            self._news.clear()
            news, told_gateway = self._lane.with_next(news), self.gateway
            if self._silent:
                return
            if isinstance(news, m.JobFinished):
                await told_gateway.job_finished(news)
            else:
                await told_gateway.job_state_changed(news)

        def goes_on(error: Failure) -> bool:
            if told_gateway is not self.gateway:  # the next one is told at once
                return True
            if not self._worth_a_repeat(news, error):
                return False
            logger.info("report to the Dispatcher: %s; next try in %g s", error, self._pause)
            return True

        try:
            await repeated(tell, goes_on, iter(lambda: self._pause, None), self._wait_for_news)
        except RpcError:
            pass
        else:
            self._pause, self.heard = FIRST_PAUSE, self._clock.monotonic()
            self.is_end_stored = self.is_end_stored or news is self._end
        if news is self._end:
            self._end = None
            self.acknowledged.set()

    async def _wait_for_news(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _worth_a_repeat(self, message: _News, error: Failure) -> bool:
        if not self._persistent:
            return False
        if isinstance(message, m.JobStateChanged):
            if isinstance(error, FencedError):
                logger.warning("the Dispatcher leads no more; the next one will adopt the job (%s)", error)
            return may_work_later(error)
        # Only a Dispatcher that leads can say that it does not want to know.
        if not may_work_later(error) and not isinstance(error, FencedError):
            logger.warning("the Dispatcher does not want to know the end of job %s: %s", self._job_id, error)
            return False
        if self._clock.monotonic() >= self._give_up_at:
            logger.error("no Dispatcher took the end of job %s for %g s: %s", self._job_id, END_KEPT, error)
            return False
        return True
