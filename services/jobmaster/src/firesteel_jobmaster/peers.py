"""How the shell speaks with the Dispatcher and the ResourceManager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import DispatcherGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc.gateways import RemoteResourceManager
from firesteel_jobmaster.lanes import FIRST_DELAY, LONGEST_DELAY, Lane, Spawn, until_it_works

logger = logging.getLogger(__name__)
GOODBYE_TRIES = 3


class DispatcherReporter:
    """Reports the job's states in their order; one that was overtaken by a newer one is left out.

    Args:
        gateway: of the Dispatcher.
        job_id: of the job.
        spawn: runs the worker.
    """

    def __init__(self, gateway: DispatcherGateway, job_id: str, spawn: Spawn) -> None:
        self._gateway, self._job_id = gateway, job_id
        self._lane = Lane("reports to the Dispatcher", spawn)
        self._state: m.JobStateChanged | None = None
        self._ending = False
        self.persistent = True
        """Repeat reports that do not arrive; a host that stops says each only once."""
        self.acknowledged = asyncio.Event()
        """The Dispatcher knows that the job has ended, or will never listen."""

    def state(self, state: str, timestamps: Mapping[str, int]) -> None:
        """The job entered a state."""
        if not self._ending:
            self._state = m.JobStateChanged(self._job_id, state, timestamps)
            self._lane.add("job_state_changed", self._send_state)

    def end(self, archive: Mapping[str, Any]) -> None:
        """The job has ended: say so until the Dispatcher knows."""
        self._ending = True
        self._state = None  # the archive says more
        self._lane.add("job_finished", lambda: self._send_end(m.JobFinished(self._job_id, archive)))

    async def _send_state(self) -> None:
        if self._state is None:
            return
        message, self._state = self._state, None
        await until_it_works(
            f"state {message.state} of job {self._job_id}",
            lambda: self._gateway.job_state_changed(message),
            lambda: self.persistent and self._state is None and not self._ending,
        )

    async def _send_end(self, message: m.JobFinished) -> None:
        try:
            await until_it_works(
                f"end of job {self._job_id}", lambda: self._gateway.job_finished(message), lambda: self.persistent
            )
        finally:
            self.acknowledged.set()


class ResourceManagerLink:
    """Registers a job at the ResourceManager and keeps the registration alive.

    Args:
        gateway: of the ResourceManager; its token is set here.
        registration: of this JobMaster.
        interval: seconds between heartbeats.
        spawn: runs the link.
        spawn_call: runs the goodbye.
        connected: called after each registration.
        lost: called when the ResourceManager does not know the job any more or is silent.
    """

    def __init__(
        self,
        gateway: RemoteResourceManager,
        registration: m.RegisterJobMaster,
        interval: float,
        spawn: Spawn,
        spawn_call: Spawn,
        connected: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        self._gateway, self._registration, self._interval = gateway, registration, interval
        self._spawn, self._spawn_call, self._connected, self._lost = spawn, spawn_call, connected, lost
        self._beating: asyncio.Task[None] | None = None
        self._term = 0
        self._closed = False
        self._delay = 0.0
        self.persistent = True
        """Repeat a goodbye that does not arrive."""

    def connect(self) -> None:
        """Register; ``connected`` follows."""
        if not self._closed:
            self._term += 1
            self._spawn(self._keep(self._term), f"link to the ResourceManager, term {self._term}")

    def declare(self, count: int) -> None:
        """Say how many slots the job wants."""
        if not self._closed:
            self._spawn(self._declare(self._term, count), "declaration of slots")

    def disconnect(self) -> None:
        """Say goodbye; a ResourceManager that does not hear it finds out by missing heartbeats."""
        if self._closed:
            return
        self._closed = True
        self._term += 1
        if self._beating is not None:
            self._beating.cancel()
        if self._gateway.token:
            self._spawn_call(self._goodbye(), "goodbye to the ResourceManager")

    def _is(self, term: int) -> bool:
        return term == self._term and not self._closed

    async def _keep(self, term: int) -> None:
        await asyncio.sleep(self._delay)
        delay = FIRST_DELAY
        while self._is(term):
            try:
                answer = await self._gateway.register_jobmaster(self._registration)
            except RpcError as error:
                logger.warning("registration at the ResourceManager: %s; next try in %g s", error, delay)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_DELAY)
                continue
            self._gateway.token = answer.token
            break
        if not self._is(term):
            if self._closed and self._gateway.token:  # the job ended while it was being registered
                await self._goodbye()
            return
        self._beating = self._spawn(self._heartbeats(term), "heartbeats to the ResourceManager")
        self._connected()

    async def _heartbeats(self, term: int) -> None:
        failures = 0
        while self._is(term):
            await asyncio.sleep(self._interval)
            if not self._is(term):
                return
            try:
                await self._gateway.jobmaster_heartbeat(m.JobMasterHeartbeat(self._registration.job_id))
                failures, self._delay = 0, 0.0
            except RpcError as error:
                failures += 1
                if failures >= 2 or isinstance(error, FencedError) or _unknown(error):
                    self._report_lost(term, str(error))
                    return

    async def _declare(self, term: int, count: int) -> None:
        message = m.DeclareRequirements(
            self._registration.job_id, (m.Requirement(m.DEFAULT_PROFILE, count),) if count else ()
        )
        try:
            while self._is(term):
                try:
                    await self._gateway.declare_requirements(message)
                    return
                except PeerUnreachableError as error:
                    logger.warning("declaration of slots: %s", error)
                    await asyncio.sleep(FIRST_DELAY)
        except RpcError as error:
            self._report_lost(term, str(error))

    def _report_lost(self, term: int, cause: str) -> None:
        if self._is(term):
            self._term += 1
            self._delay = min(max(2 * self._delay, FIRST_DELAY), LONGEST_DELAY)
            self._lost(cause)

    async def _goodbye(self) -> None:
        tries = iter(range(GOODBYE_TRIES - 1))
        await until_it_works(
            "goodbye to the ResourceManager",
            lambda: self._gateway.disconnect_jobmaster(m.DisconnectJobMaster(self._registration.job_id)),
            lambda: self.persistent and next(tries, None) is not None,
        )


def _unknown(error: RpcError) -> bool:
    return isinstance(error, RpcFault) and error.code is RpcCode.NOT_FOUND
