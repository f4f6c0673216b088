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
from firesteel.rpc import may_work_later
from firesteel_jobmaster.lanes import FIRST_DELAY, LONGEST_DELAY, Spawn

logger = logging.getLogger(__name__)
END_KEPT = 3600.0
"""Seconds for which a JobMaster offers the end of its job to Dispatchers that do not answer, or lead no more."""


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
        self._gateway, self._job_id, self._token, self._clock, self._spawn = gateway, job_id, token, clock, spawn
        self._state: m.JobStateChanged | None = None
        self._end: m.JobFinished | None = None
        self._give_up_at = 0.0
        self._working = False
        self._persistent = True
        self._news = asyncio.Event()
        self.heard = clock.monotonic()
        """When a Dispatcher was last reached."""
        self.acknowledged = asyncio.Event()
        """Nothing is to be told any more: the Dispatcher has taken the end or does not want it, or nobody listens."""
        self.is_end_stored = False
        """The Dispatcher has taken the end: no other JobMaster will go on with the job."""

    def state(self, state: str, timestamps: Mapping[str, int]) -> None:
        """The job entered a state."""
        if self._end is None:
            self._state = m.JobStateChanged(self._job_id, state, timestamps, self._token)
            self._work_on()

    def end(self, archive: Mapping[str, Any]) -> None:
        """The job has ended: say so until the Dispatcher knows."""
        self._state = None  # the archive says more
        self._end = m.JobFinished(self._job_id, archive, self._token)
        self._give_up_at = self._clock.monotonic() + END_KEPT
        self._work_on()

    def adopt(self, gateway: DispatcherGateway) -> None:
        """Another Dispatcher leads: what is still to be told goes to it, at once."""
        self._gateway = gateway
        self._work_on()

    def hurry(self) -> None:
        """The host stops: whatever is still to be told is tried once more and then given up."""
        self._persistent = False
        self._news.set()

    def silence(self) -> None:
        """The JobMaster has crashed: what it believes is told to nobody."""
        self._state = self._end = None
        self._persistent = False
        self._news.set()

    def _work_on(self) -> None:
        self._news.set()
        if not self._working:
            self._working = self._spawn(self._work(), "reports to the Dispatcher") is not None

    async def _work(self) -> None:
        delay = FIRST_DELAY
        try:
            while (message := self._end or self._state) is not None:
                self._news.clear()
                gateway = self._gateway
                try:
                    if isinstance(message, m.JobFinished):
                        await gateway.job_finished(message)
                    else:
                        await gateway.job_state_changed(message)
                except RpcError as error:
                    if gateway is not self._gateway:
                        delay = FIRST_DELAY
                        continue
                    if not self._worth_a_repeat(message, error):
                        self._done(message)
                        continue
                    logger.info("report to the Dispatcher: %s; next try in %g s", error, delay)
                    try:
                        await asyncio.wait_for(self._news.wait(), delay)
                    except TimeoutError:
                        delay = min(delay * 2, LONGEST_DELAY)
                else:
                    delay, self.heard = FIRST_DELAY, self._clock.monotonic()
                    self.is_end_stored = self.is_end_stored or message is self._end
                    self._done(message)
        finally:
            self._working = False

    def _worth_a_repeat(self, message: m.JobStateChanged | m.JobFinished, error: RpcError) -> bool:
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

    def _done(self, message: m.JobStateChanged | m.JobFinished) -> None:
        if message is self._state:
            self._state = None
        elif message is self._end:
            self._end = None
            self.acknowledged.set()
