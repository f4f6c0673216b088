"""Registrations of the processes that Spark starts for slots, also of those that run in their job's own Python."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

from firesteel.core.errors import FiresteelError, ProtocolError
from firesteel.core.process import identify
from firesteel.service.python_environments import PythonEnvironments
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.channels import ChannelServer
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.memory import offer_to_oom_killer

logger = logging.getLogger(__name__)


class _Owner(Protocol):
    """What registrations need of the TaskManager."""

    channels: ChannelServer
    core: TaskManagerCore

    @property
    def now(self) -> float: ...

    @property
    def has_own_executors(self) -> bool: ...

    def perform(self, instructions: Iterable[i.Instruction]) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any] | None: ...


class ProcessRegistrations:
    """Takes the registration of a slot's process, or sends the process on to the job's own Python environment.

    Args:
        owner: the TaskManager.
        environments: makes environments of jobs.
    """

    def __init__(self, owner: _Owner, environments: PythonEnvironments) -> None:
        self._owner, self._environments = owner, environments

    def register(self, channel: int, message: Mapping[str, Any]) -> None:
        """A process registers for a slot.

        Raises:
            ProtocolError: the process has registered before, or has another process id than it says.
        """
        owner = self._owner
        if owner.channels.is_registered(channel):
            raise ProtocolError(f"control channel {channel}", "it registered twice")
        owner.channels.mark_registered(channel)
        pid, real = message.get("pid"), owner.channels.peer_pid(channel)
        if real is not None and pid != real:
            raise ProtocolError(f"control channel {channel}", f"process {real} says that it is {pid!r}")
        slot = owner.core.needs_environment(str(message.get("allocation_id")), str(message.get("environment", "")))
        if slot is not None:
            owner.spawn(self._start_elsewhere(channel, slot.allocation_id, slot.job_id, slot.python), "environment")
            return
        identity = identify(pid) if isinstance(pid, int) else None
        if identity is not None and owner.has_own_executors:
            offer_to_oom_killer(identity)
        owner.perform(owner.core.register(channel, message, identity, owner.now))

    async def _start_elsewhere(self, channel: int, allocation_id: str, job_id: str, python: Mapping[str, Any]) -> None:
        """Have a slot's process go on in the job's own Python environment, once that is made."""
        owner = self._owner
        seconds = float(python["timeout_seconds"])
        owner.core.environment_takes(allocation_id, seconds, owner.now)
        owner.channels.send(channel, {"type": "wait", "seconds": seconds})
        try:
            prepared = await self._environments.prepare(job_id, python)
        except (FiresteelError, asyncio.CancelledError) as error:
            owner.channels.send(channel, {"type": "rejected", "reason": str(error)})
            owner.channels.close_channel(channel)
            if isinstance(error, asyncio.CancelledError):
                raise
            logger.warning("%s", error)
            owner.perform(owner.core.environment_failed(allocation_id, str(error), owner.now))
            return
        owner.core.environment_takes(allocation_id, 0.0, owner.now)
        owner.perform(())
        owner.channels.send(channel, prepared.order())
        owner.channels.close_channel(channel)
