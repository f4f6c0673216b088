"""The TaskManager's side of its bond with the ResourceManager."""

from __future__ import annotations

import logging
from typing import Protocol

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, RpcError
from firesteel.ha.retrieval import LeaderRetrieval
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.rpc import RpcClient
from firesteel.service.leader_link import LeaderLink
from firesteel.service.registration import RegistrationSettings

logger = logging.getLogger(__name__)
_CANCEL_SECONDS = 4.0
"""Seconds within which the fleet has to give up a slot, and to say what it knows about the slot's end."""
_RETRY_PAUSES = (0.05, 0.5, 2.0)


class _Owner(Protocol):
    client: RpcClient

    def registration(self) -> m.RegisterTaskManager:
        """The message with which the TaskManager registers."""

    def in_use(self) -> bool:
        """Whether a job uses a slot."""

    def give_up(self, cause: str) -> None:
        """End the TaskManager: it could not register for too long."""


class TaskManagerResourceManagerLink(LeaderLink):
    """Registers a TaskManager, and sends its messages. The ResourceManager sends heartbeats."""

    def __init__(self, owner: _Owner, leaders: LeaderRetrieval, settings: RegistrationSettings, clock: Clock) -> None:
        async def register(gateway: ResourceManagerGateway) -> tuple[str, float]:
            answer = await gateway.register_taskmanager(owner.registration())
            return answer.token, answer.heartbeat_interval_ms / 1000

        super().__init__(
            leaders, lambda: owner.client, register, settings, clock, owner.in_use, lambda: None, lambda _: None,
            owner.give_up,
        )  # fmt: skip

    async def tell_free(self, slot: m.SlotAvailable) -> None:
        """Report that a slot is free; if that fails, the answer to the next heartbeat says it."""
        await self.tell("that a slot is free", lambda gateway: gateway.slot_available(slot), _RETRY_PAUSES)

    async def tell_executor_lost(self, lost: m.ExecutorLost) -> None:
        """Report that an executor is lost and another one is needed."""
        await self.tell("that an executor is lost", lambda gateway: gateway.executor_lost(lost), _RETRY_PAUSES)

    async def cancel_launch(self, slot: m.SlotAvailable) -> str:
        """Have the fleet give up a slot; returns the fleet's word about the slot's end, empty if it has none."""
        if not self.bond.is_registered:
            return ""
        try:
            return (await self.gateway(_CANCEL_SECONDS).cancel_slot(slot)).cause
        except RpcError as error:
            logger.warning("the launch of slot %s was not cancelled: %s", slot.allocation_id, error)
            if isinstance(error, FencedError):
                self.lost("another ResourceManager leads")
            return ""

    async def say_goodbye(self, taskmanager_id: str) -> None:
        """Tell the ResourceManager that the TaskManager stops; one that can't be reached will notice it."""
        if self.bond.is_registered:
            try:
                await self.gateway().disconnect_taskmanager(m.DisconnectTaskManager(taskmanager_id, "it stopped"))
            except RpcError as error:
                logger.info("the ResourceManager did not hear the goodbye: %s", error)
