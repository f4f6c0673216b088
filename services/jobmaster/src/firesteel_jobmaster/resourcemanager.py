"""How the shell speaks with the ResourceManager."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from firesteel.core.backoff import pauses
from firesteel.core.clock import Clock
from firesteel.core.errors import PeerUnreachableError, RpcError
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc import RpcClient
from firesteel.service.heartbeat import is_silence
from firesteel.service.lanes import Lane, Spawn
from firesteel.service.leader_link import LeaderLink
from firesteel.service.retries import FIRST_PAUSE, LONGEST_PAUSE, Failure, is_gone, repeated, until_it_works
from firesteel_jobmaster.settings import JobMasterSettings

logger = logging.getLogger(__name__)
GOODBYE_TRIES = 3


class JobMasterResourceManagerLink(LeaderLink):
    """Registers a job, keeps the registration alive by heartbeats, and declares the slots that the job needs.

    Args:
        leaders: say where the ResourceManager is.
        address: of the ResourceManager when leaders are not elected.
        rpc: carries calls.
        registration: message with which this JobMaster registers.
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
        leaders: LeaderRetrieval,
        address: str,
        rpc: RpcClient,
        registration: m.RegisterJobMaster,
        settings: JobMasterSettings,
        clock: Clock,
        spawn: Spawn,
        spawn_call: Spawn,
        connected: Callable[[], None],
        lost: Callable[[str], None],
        followed: Callable[[str], None],
    ) -> None:
        async def register(gateway: ResourceManagerGateway) -> tuple[str, float]:
            answer = await gateway.register_jobmaster(registration)
            self.ends_within = answer.ends_within
            return answer.token, 0.0

        super().__init__(
            leaders, lambda: rpc, register, settings.registration, clock, lambda: True,
            self._connected, self._not_known, followed, address,
        )  # fmt: skip
        self._registration, self._interval = registration, settings.heartbeat_interval
        self._spawn, self._spawn_call = spawn, spawn_call
        self._on_connected, self._on_not_known, self._on_followed = connected, lost, followed
        self._beating: asyncio.Task[None] | None = None
        self._declarations: Lane[m.DeclareRequirements] | None = None
        """Declarations under the present registration; None: there is none."""
        self._started = self._left = False
        self.ends_within = 0.0
        """Seconds within which the ResourceManager says how a TaskManager has ended; 0: it does not."""
        self._persistent = True
        self.last_heard = clock.monotonic()
        """When the ResourceManager was last reached."""

    def connect(self) -> None:
        """Register; ``connected`` follows, and again whenever the registration was lost."""
        if not (self._started or self.is_closed):
            self._started = True
            self.start()
            self._spawn(self.keep(), "link to the ResourceManager")

    def declare(self, count: int, returned: tuple[str, ...], most: int = 0) -> None:
        """Declare how many slots the job needs, and which it has given back; the last declaration counts.

        The job takes up to ``most`` slots if nobody else needs them.
        """
        me = self._registration
        requirements = (m.Requirement(m.DEFAULT_PROFILE, count),) if count else ()
        if self._declarations is not None and not self.is_closed:
            self._declarations.add(m.DeclareRequirements(me.job_id, requirements, returned, me.jobmaster_token, most))

    def disconnect(self) -> None:
        """Say goodbye, once; a ResourceManager that does not hear it notices missing heartbeats."""
        if self._left:
            return
        self._left = True
        self.close()
        self._end()
        if self.gateway().token:
            self._spawn_call(self._goodbye(), "goodbye to the ResourceManager")

    def hurry(self) -> None:
        """The host stops: a goodbye that does not arrive is not repeated."""
        self._persistent = False

    def _connected(self) -> None:
        if self.is_closed:  # the job ended while it was being registered
            self._spawn_call(self._goodbye(), "goodbye to the ResourceManager")
            return
        self.last_heard = self._clock.monotonic()
        self._end()
        self._declarations = self._lane()
        self._beating = self._spawn(self._heartbeats(), "heartbeats to the ResourceManager")
        self._on_connected()

    def _not_known(self, cause: str) -> None:
        self._end()
        if not self.is_closed:
            self._on_not_known(cause)

    def _end(self) -> None:
        """End declarations and heartbeats of a registration that is over."""
        self._declarations = None
        if self._beating is not None and self._beating is not asyncio.current_task():
            self._beating.cancel()
        self._beating = None

    def _refused(self, error: RpcError) -> None:
        if self.is_closed:
            return
        if isinstance(error, RpcFault) and error.code is RpcCode.GONE:
            self.close()
            self._end()
            self._on_followed(str(error))
        else:
            self.lost(str(error))

    async def _heartbeats(self) -> None:
        beat = m.JobMasterHeartbeat(self._registration.job_id, self._registration.jobmaster_token)
        me = asyncio.current_task()
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.gateway().jobmaster_heartbeat(beat)
            except RpcError as error:
                if self._beating is not me:
                    return
                if is_gone(error) or (isinstance(error, RpcFault) and error.code is RpcCode.GONE):
                    self._refused(error)
                    return
                if not is_silence(error):
                    self.bond.unanswered()
            else:
                self.bond.heard()
                self.last_heard = self._clock.monotonic()

    def _lane(self) -> Lane[m.DeclareRequirements]:
        """A lane of declarations under one registration; one that was overtaken by a newer one is left out."""

        async def declare(requirements: m.DeclareRequirements) -> None:
            async def call() -> None:
                nonlocal requirements
                requirements = lane.with_next(requirements)
                if lane is self._declarations:
                    await self.gateway().declare_requirements(requirements)

            def goes_on(error: Failure) -> bool:
                logger.warning("declaration of slots: %s", error)
                return isinstance(error, PeerUnreachableError)

            try:
                await repeated(call, goes_on, pauses(FIRST_PAUSE, LONGEST_PAUSE))
            except RpcError as error:
                if lane is self._declarations:
                    self._refused(error)

        lane = Lane("declaration of slots", declare, self._spawn, lambda _, newer: newer)
        return lane

    async def _goodbye(self) -> None:
        goodbye = m.DisconnectJobMaster(self._registration.job_id, sender=self._registration.jobmaster_token)
        tries = iter(range(GOODBYE_TRIES - 1))
        await until_it_works(
            "goodbye to the ResourceManager",
            lambda: self.gateway().disconnect_jobmaster(goodbye),
            lambda: self._persistent and next(tries, None) is not None,
        )
