"""How the shell speaks with the ResourceManager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.ha.retrieval import RESOURCEMANAGER, LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import Failure, Lane, Spawn, is_gone, may_work_later, repeated, until_it_works
from firesteel.rpc.retries import FIRST_PAUSE, LONGEST_PAUSE
from firesteel.service.heartbeat import is_silence
from firesteel.service.leaders import PeerLeader
from firesteel_jobmaster.settings import JobMasterSettings

logger = logging.getLogger(__name__)
GOODBYE_TRIES = 3


class ResourceManagerLink:
    """Registers a job at the ResourceManager and keeps the registration alive.

    Args:
        gateway: of the ResourceManager; its address and token are set here.
        leaders: say where it is; where they are not elected, it is where the gateway says.
        registration: of this JobMaster.
        settings: intervals and timeouts.
        clock: measures silence.
        spawn: runs the link.
        spawn_call: runs the goodbye.
        connected: called after each registration.
        lost: called when the ResourceManager does not know the job any more or is silent.
        followed: called when another JobMaster leads the job.
    """

    def __init__(
        self,
        gateway: ResourceManagerGateway,
        leaders: LeaderRetrieval,
        registration: m.RegisterJobMaster,
        settings: JobMasterSettings,
        clock: Clock,
        spawn: Spawn,
        spawn_call: Spawn,
        connected: Callable[[], None],
        lost: Callable[[str], None],
        followed: Callable[[str], None],
    ) -> None:
        self._gateway, self._registration, self._settings, self._clock = gateway, registration, settings, clock
        self._spawn, self._spawn_call, self._connected, self._lost = spawn, spawn_call, connected, lost
        self._followed = followed
        self._beating: asyncio.Task[None] | None = None
        self._term = 0
        self._closed = False
        self._delay = 0.0
        self._declarations: tuple[int, Lane[m.DeclareRequirements]] | None = None
        """Those of a term."""
        self._persistent = True
        self._leader = PeerLeader(leaders, RESOURCEMANAGER, self._leader_changed)
        self.heard = clock.monotonic()
        """When the ResourceManager was last reached."""

    def connect(self) -> None:
        """Register; ``connected`` follows."""
        if not self._closed:
            if self._term == 0:
                self._leader.start()
            if (leader := self._leader.elected) is not None:
                self._gateway.address, self._gateway.token = leader.address, leader.token
            else:
                self._gateway.token = ""  # whoever leads there says who it is
            self._term += 1
            self._spawn(self._keep(self._term), f"link to the ResourceManager, term {self._term}")

    def _leader_changed(self) -> None:
        if not self._closed:
            self._delay = 0.0
            if self._beating is not None:
                self._beating.cancel()
            self._term += 1
            self._lost(f"the ResourceManager at {self._leader.address} leads")

    def declare(self, count: int, returned: tuple[str, ...]) -> None:
        """Say how many slots the job wants, and which it has given back; the last word counts."""
        me = self._registration
        wanted = (m.Requirement(m.DEFAULT_PROFILE, count),) if count else ()
        if self._closed:
            return
        if self._declarations is None or self._declarations[0] != self._term:
            self._declarations = self._term, self._lane(self._term)
        self._declarations[1].add(m.DeclareRequirements(me.job_id, wanted, returned, me.jobmaster_token))

    def _lane(self, term: int) -> Lane[m.DeclareRequirements]:
        """For declarations of a term; one that was overtaken by a newer one is left out."""

        async def declare(wanted: m.DeclareRequirements) -> None:
            async def call() -> None:
                nonlocal wanted
                wanted = lane.with_next(wanted)
                if self._is(term):
                    await self._gateway.declare_requirements(wanted)

            def goes_on(error: Failure) -> bool:
                logger.warning("declaration of slots: %s", error)
                return isinstance(error, PeerUnreachableError)

            try:
                await repeated(call, goes_on, pauses(FIRST_PAUSE, LONGEST_PAUSE))
            except RpcError as error:
                if _is_followed(error):
                    self._report_followed(term, error)
                else:
                    self._report_lost(term, str(error))

        lane = Lane("declaration of slots", declare, self._spawn, lambda _, newer: newer)
        return lane

    def disconnect(self) -> None:
        """Say goodbye; a ResourceManager that does not hear it finds out by missing heartbeats."""
        if self._closed:
            return
        self._closed = True
        self._leader.stop()
        self._term += 1
        if self._beating is not None:
            self._beating.cancel()
        if self._gateway.token:
            self._spawn_call(self._goodbye(), "goodbye to the ResourceManager")

    def hurry(self) -> None:
        """The host stops: a goodbye that does not arrive is not repeated."""
        self._persistent = False

    def _is(self, term: int) -> bool:
        return term == self._term and not self._closed

    async def _keep(self, term: int) -> None:
        await asyncio.sleep(self._delay)
        waits = pauses(self._settings.registration_initial, self._settings.registration_max)
        while self._is(term):
            try:
                answer = await self._gateway.register_jobmaster(self._registration)
            except RpcError as error:
                if _is_followed(error):
                    self._report_followed(term, error)
                    return
                if isinstance(error, PeerUnreachableError):
                    pause = next(waits)
                else:
                    pause = self._settings.error_delay if may_work_later(error) else self._settings.refused_delay
                logger.warning("registration at the ResourceManager: %s; next try in %g s", error, pause)
                await asyncio.sleep(pause)
                continue
            self._gateway.token, self.heard = answer.token, self._clock.monotonic()
            break
        if not self._is(term):
            if self._closed and self._gateway.token:  # the job ended while it was being registered
                await self._goodbye()
            return
        self._beating = self._spawn(self._heartbeats(term), "heartbeats to the ResourceManager")
        self._connected()

    async def _heartbeats(self, term: int) -> None:
        me = self._registration
        failures, heard = 0, self._clock.monotonic()
        while self._is(term):
            await asyncio.sleep(self._settings.heartbeat_interval)
            if not self._is(term):
                return
            try:
                await self._gateway.jobmaster_heartbeat(m.JobMasterHeartbeat(me.job_id, me.jobmaster_token))
                failures, self._delay, heard = 0, 0.0, self._clock.monotonic()
                self.heard = heard
            except RpcError as error:
                if _is_followed(error):
                    self._report_followed(term, error)
                    return
                failures += not is_silence(error)
                silent = self._clock.monotonic() - heard >= self._settings.heartbeat_timeout
                gone = is_gone(error)
                if gone or silent or 0 < self._settings.heartbeat_failures <= failures:
                    self._report_lost(term, str(error))
                    return

    def _report_lost(self, term: int, cause: str) -> None:
        if self._is(term):
            self._term += 1
            self._delay = min(max(2 * self._delay, FIRST_PAUSE), LONGEST_PAUSE)
            self._lost(cause)

    def _report_followed(self, term: int, error: RpcError) -> None:
        if self._is(term):
            self._term += 1
            self._followed(str(error))

    async def _goodbye(self) -> None:
        goodbye = m.DisconnectJobMaster(self._registration.job_id, sender=self._registration.jobmaster_token)
        tries = iter(range(GOODBYE_TRIES - 1))
        await until_it_works(
            "goodbye to the ResourceManager",
            lambda: self._gateway.disconnect_jobmaster(goodbye),
            lambda: self._persistent and next(tries, None) is not None,
        )


def _is_followed(error: RpcError) -> bool:
    return isinstance(error, RpcFault) and error.code is RpcCode.GONE
