"""The TaskManager's side of its bond with the ResourceManager."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.rpc import RpcClient
from firesteel.rpc.gateways import RemoteResourceManager
from firesteel.service.heartbeat import HeartbeatMonitor

logger = logging.getLogger(__name__)
_PEER = "resourcemanager"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 10.0
_CANCEL_SECONDS = 4.0
"""How long the fleet may take to give up a slot, and to say what it knows about its end."""


class _Owner(Protocol):
    resourcemanager_address: str
    client: RpcClient

    def registration(self) -> m.RegisterTaskManager:
        """How it presents itself."""


class ResourceManagerLink:
    """Registration, again after every loss; calls that need its token."""

    def __init__(self, owner: _Owner, heartbeat_timeout: float, clock: Clock) -> None:
        self._owner = owner
        self._monitor = HeartbeatMonitor(clock, heartbeat_timeout, min(1.0, heartbeat_timeout / 4), failure_threshold=0)
        self._token = ""
        self._lost = asyncio.Event()
        self._registered = asyncio.Event()

    @property
    def is_registered(self) -> bool:
        """Whether the ResourceManager knows us, as far as is known here."""
        return self._registered.is_set()

    def heard(self) -> None:
        """It sent a heartbeat."""
        self._monitor.heard(_PEER)

    def tick(self) -> None:
        """Time has passed."""
        if self._monitor.tick():
            self._forget("it sends no heartbeats")

    async def stay_registered(self) -> None:
        """Register, and again whenever the bond broke; for ever."""
        pause = _FIRST_PAUSE
        while True:
            self._lost.clear()
            gateway = RemoteResourceManager(self._owner.client, self._owner.resourcemanager_address)
            try:
                answer = await gateway.register_taskmanager(self._owner.registration())
            except RpcError as error:
                logger.warning("no registration at the ResourceManager yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause, self._token = _FIRST_PAUSE, answer.token
            self._monitor.watch(_PEER)
            self._registered.set()
            await self._lost.wait()

    async def tell_free(self, slot: m.SlotAvailable) -> None:
        """Say that a slot is free; if that fails, the next heartbeat says it."""
        gateway = await self._gateway()
        for pause in (0.05, 0.5, None):
            try:
                await gateway.slot_available(slot)
            except PeerUnreachableError as error:
                if pause is None:
                    logger.warning("the ResourceManager did not hear that a slot is free: %s", error)
                    return
                await asyncio.sleep(pause)
            except RpcError as error:
                self._refused(error)
                return
            else:
                return

    async def cancel_launch(self, slot: m.SlotAvailable) -> str:
        """Have the fleet give up a slot; returns what it knows about the slot's end, or nothing."""
        try:
            answer = await self._owner.client.call(
                self._owner.resourcemanager_address, "cancel_slot", slot.to_plain(), self._token, _CANCEL_SECONDS
            )
        except RpcError as error:
            logger.warning("the launch of slot %s was not cancelled: %s", slot.allocation_id, error)
            self._refused(error)
            return ""
        return str(answer.get("cause") or "")

    async def say_goodbye(self, taskmanager_id: str) -> None:
        """The TaskManager stops; a ResourceManager that can't be reached will notice."""
        if self.is_registered:
            gateway = await self._gateway()
            try:
                await gateway.disconnect_taskmanager(m.DisconnectTaskManager(taskmanager_id, "it stopped"))
            except RpcError as error:
                logger.info("the ResourceManager did not hear the goodbye: %s", error)

    async def _gateway(self) -> RemoteResourceManager:
        await self._registered.wait()
        return RemoteResourceManager(self._owner.client, self._owner.resourcemanager_address, self._token)

    def _refused(self, error: RpcError) -> None:
        if isinstance(error, FencedError):
            self._forget("another ResourceManager leads")

    def _forget(self, cause: str) -> None:
        if self._registered.is_set():
            logger.warning("the ResourceManager is lost (%s); registering again", cause)
        self._registered.clear()
        self._monitor.forget(_PEER)
        self._lost.set()
