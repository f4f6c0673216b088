"""The TaskManager's side of its bond with the ResourceManager: carries out what ``registration`` decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import DEFAULT_TIMEOUT
from firesteel.rpc import RpcClient, repeated
from firesteel.service.leaders import PeerLeader
from firesteel_taskmanager.registration import Answer, Registration
from firesteel_taskmanager.settings import RegistrationSettings

logger = logging.getLogger(__name__)
_CANCEL_SECONDS = 4.0
"""How long the fleet may take to give up a slot, and to say what it knows about its end."""
_ANSWER_SECONDS = 5.0
_RETRY_PAUSES = (0.05, 0.5, 2.0)
_REFUSALS = frozenset({RpcCode.BAD_REQUEST, RpcCode.VERSION, RpcCode.NO_RESOURCES})
_Call = Callable[[ResourceManagerGateway], Awaitable[None]]


class _Owner(Protocol):
    resourcemanager: PeerLeader
    client: RpcClient

    def registration(self) -> m.RegisterTaskManager:
        """How it presents itself."""

    def in_use(self) -> bool:
        """Whether a job uses a slot."""

    def give_up(self, cause: str) -> None:
        """The ResourceManager is not to be had."""


class ResourceManagerLink:
    """Registration, again after every loss; calls that need its token."""

    def __init__(self, owner: _Owner, settings: RegistrationSettings, clock: Clock) -> None:
        self._owner, self._clock = owner, clock
        self._bond = Registration(settings, clock)
        self._alarm = asyncio.Event()
        self._registered = asyncio.Event()
        self._answered = asyncio.Event()  # no registration is on its way
        self._answered.set()

    @property
    def is_registered(self) -> bool:
        """Whether the ResourceManager knows us, as far as is known here."""
        return self._bond.is_registered

    @property
    def token(self) -> str:
        """Of the ResourceManager that leads, as far as is known here; empty before the first registration."""
        return self._bond.token

    async def answered(self) -> None:
        """Wait, some seconds at most, for the answer to a registration that is on its way.

        What a ResourceManager sends as soon as it knows us may be here before its answer.
        """
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._answered.wait()
        except TimeoutError:
            pass

    def heard(self) -> None:
        """It sent a heartbeat."""
        self._bond.heard()

    def leader_changed(self) -> None:
        """Another ResourceManager leads, as far as is known: register there at once."""
        leader = self._owner.resourcemanager.leader
        if leader is not None and not (self._bond.is_registered and leader.token and leader.token == self._bond.token):
            self._bond.leads_elsewhere(f"the ResourceManager at {leader.address} leads")
            self._alarm.set()

    async def stay_registered(self) -> None:
        """Register, and again whenever the bond broke; until it is given up."""
        while True:
            self._alarm.clear()
            for _ in self._bond.tick():
                await self._register()
            due = self._bond.next_tick
            if due is None:
                return
            try:
                async with asyncio.timeout(max(0.0, due - self._clock.monotonic()) + 0.001):
                    await self._alarm.wait()
            except TimeoutError:
                pass

    async def tell_free(self, slot: m.SlotAvailable) -> None:
        """Say that a slot is free; if that fails, the next heartbeat says it."""
        await self._tell("that a slot is free", lambda gateway: gateway.slot_available(slot))

    async def tell_executor_lost(self, lost: m.ExecutorLost) -> None:
        """Say that another executor is needed; a ResourceManager that does not hear it sees it at the next one's."""
        await self._tell("that an executor is lost", lambda gateway: gateway.executor_lost(lost))

    async def cancel_launch(self, slot: m.SlotAvailable) -> str:
        """Have the fleet give up a slot; returns what it knows about the slot's end, or nothing."""
        if not self.is_registered:
            return ""
        try:
            return (await self._gateway(_CANCEL_SECONDS).cancel_slot(slot)).cause
        except RpcError as error:
            logger.warning("the launch of slot %s was not cancelled: %s", slot.allocation_id, error)
            self._refused(error)
            return ""

    async def say_goodbye(self, taskmanager_id: str) -> None:
        """The TaskManager stops; a ResourceManager that can't be reached will notice."""
        if self.is_registered:
            try:
                await self._gateway().disconnect_taskmanager(m.DisconnectTaskManager(taskmanager_id, "it stopped"))
            except RpcError as error:
                logger.info("the ResourceManager did not hear the goodbye: %s", error)

    async def _register(self) -> None:
        leader = self._owner.resourcemanager.leader
        where, token = ("", "") if leader is None else (leader.address, leader.token)
        gateway = ResourceManagerGateway(self._owner.client, where, token)
        self._answered.clear()
        try:
            answer = await gateway.register_taskmanager(self._owner.registration())
        except (RpcError, ProtocolError) as error:
            if isinstance(error, PeerUnreachableError):
                kind = Answer.NONE
            else:
                refused = isinstance(error, RpcFault) and error.code in _REFUSALS
                kind = Answer.REFUSED if refused else Answer.ERROR
            for end in self._bond.failed(kind, str(error), self._owner.in_use()):
                self._owner.give_up(end.cause)
        else:
            self._bond.accepted(answer.token, answer.heartbeat_interval_ms / 1000)
            self._registered.set()
        finally:
            self._answered.set()

    async def _tell(self, what: str, call: _Call) -> None:
        async def tell() -> None:
            while not self.is_registered:
                self._registered.clear()
                await self._registered.wait()
            try:
                await call(self._gateway())
            except FencedError as error:  # the new one hears it as well
                self._refused(error)
                raise

        try:
            await repeated(tell, lambda error: isinstance(error, PeerUnreachableError | FencedError), _RETRY_PAUSES)
        except RpcError as error:
            logger.warning("the ResourceManager did not hear %s: %s", what, error)

    def _gateway(self, timeout: float = DEFAULT_TIMEOUT) -> ResourceManagerGateway:
        where, token = self._owner.resourcemanager.address, self._bond.token
        return ResourceManagerGateway(self._owner.client, where, token, timeout)

    def _refused(self, error: RpcError) -> None:
        if isinstance(error, FencedError):
            self._bond.lost("another ResourceManager leads")
            self._alarm.set()
