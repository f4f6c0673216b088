"""The way of tasks into slots: their code is fetched, and what only this TaskManager knows is added."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from aiohttp import ClientSession

from firesteel.config import Settings
from firesteel.config.memory import TaskManagerMemory
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError
from firesteel.core.secret import job_secret
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.traces.tracing import Tracing
from firesteel_taskmanager import instructions as i
from firesteel_taskmanager.blobs import BlobCache
from firesteel_taskmanager.core import TaskManagerCore
from firesteel_taskmanager.local_directories import LocalDirectories
from firesteel_taskmanager.settings import cancellation_of
from firesteel_taskmanager.traces import deployed

logger = logging.getLogger(__name__)
_KEPT_PLACEMENTS = 4
"""Placements of each job that are kept: submits with earlier ones may still be on their way."""
_BLOB_PAUSES = (0.1, 0.5, 1.0, 3.0, 5.0)
"""Seconds between attempts to fetch blobs: as many as Flink's ``blob.fetch.retries``."""


class _Owner(Protocol):
    """What deployments need of the TaskManager."""

    core: TaskManagerCore
    taskmanager_id: str

    @property
    def session(self) -> ClientSession: ...

    def perform(self, instructions: Iterable[i.Instruction]) -> None: ...


class Deployments:
    """Takes tasks that JobMasters submit, and keeps what they need here until their job has no slot any more.

    Args:
        owner: the TaskManager.
        settings: of the cluster.
        secret: of the cluster; each job gets one that is made of it.
        clock: dates deployments.
        memory: of the TaskManager; None: not bounded.
        blob_directory: private; made when needed.
        tracing: exports spans of deployments; None: nobody wants them.
    """

    def __init__(
        self, owner: _Owner, settings: Settings, secret: str, clock: Clock, memory: TaskManagerMemory | None,
        blob_directory: Path, tracing: Tracing | None,
    ) -> None:  # fmt: skip
        self._owner, self._settings, self._secret, self._clock = owner, settings, secret, clock
        self._memory, self._tracing = memory, tracing
        self._blobs = BlobCache(blob_directory, secret, clock)
        self._local = LocalDirectories(settings)
        self._placements: dict[str, OrderedDict[str, str]] = {}
        """Job -> id -> packed placement, for the placements that were shared last."""

    def open(self) -> None:
        """Make the directories for local copies of state.

        Raises:
            ConfigurationError: one can't be made.
        """
        self._local.open()

    async def close(self) -> None:
        """Remove all files of jobs."""
        await self._blobs.close()
        self._local.close()

    def forget(self, job_id: str) -> None:
        """The job has no slot here any more: remove its files."""
        self._blobs.forget(job_id)
        self._local.forget(job_id)
        self._placements.pop(job_id, None)

    async def fetch_blobs(self, job_id: str, address: str, names: Iterable[str]) -> dict[str, str]:
        """Paths of blobs of a job by SHA-256.

        Raises:
            RpcError: one can't be fetched.
        """
        return await self._blobs.fetch(self._owner.session, job_id, address, names)

    def share_placement(self, message: m.SharePlacement) -> None:
        """Keep a placement, which says where the subtasks of a job run, for the submits that follow."""
        of_job = self._placements.setdefault(message.job_id, OrderedDict())
        of_job[message.placement_id] = message.placement
        of_job.move_to_end(message.placement_id)
        while len(of_job) > _KEPT_PLACEMENTS:
            of_job.popitem(last=False)

    async def submit(self, message: m.SubmitTasks) -> None:
        """Fetch the blobs, then have the slot run the tasks.

        Raises:
            FencedError: the caller does not lead the job.
            ProtocolError: the deployment is malformed.
            RpcFault: its placement was not shared, or its blobs can't be fetched.
        """
        owner = self._owner
        if not owner.core.leads(message.job_id, message.allocation_id, message.jobmaster_token):
            raise FencedError(f"another JobMaster leads job {message.job_id}")
        plain = message.deployment
        try:
            names = [str(task["chain"]) for task in plain["tasks"]]
            executions = [str(task["execution_id"]) for task in plain["tasks"]]
            names += [str(name) for name in plain.get("blobs") or ()]
            names += [str(plain["main_blob"])] if plain["main_blob"] else []
            config = {str(key): str(value) for key, value in plain["config"].items()}
            secret = job_secret(self._secret, str(plain["salt"]))
            placement = self._placements.get(message.job_id, OrderedDict()).get(str(plain["placement"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ProtocolError("submit_tasks", f"malformed deployment: {type(error).__name__}: {error}") from error
        if placement is None:
            text = f"where the tasks of job {message.job_id} run is not known to {owner.taskmanager_id}"
            raise RpcFault(RpcCode.UNKNOWN_PLACEMENT, text)
        tasks, slot_key = owner.core.tasks, (message.job_id, message.allocation_id)
        cancellation = cancellation_of(self._settings, config)
        if not tasks.begin_deploy(*slot_key, executions, cancellation, self._clock.monotonic()):
            return
        received_ms = self._clock.epoch_ms()
        blobs = await self._fetch(message, names)
        managed = 0 if self._memory is None else self._memory.managed // len(owner.core.slots)
        additions = {
            "blobs": blobs,
            "secret": secret,
            "placement": placement,
            "managed_memory": managed,
            "local_directories": self._local.of(message.job_id),
        }
        instructions = tasks.deploy(*slot_key, {**plain, **additions})
        owner.perform(instructions)
        if instructions and self._tracing is not None:
            self._tracing.export(deployed(plain, owner.taskmanager_id, received_ms, self._clock.epoch_ms()))

    async def _fetch(self, message: m.SubmitTasks, names: list[str]) -> Mapping[str, str]:
        for pause in (*_BLOB_PAUSES, None):
            try:
                return await self.fetch_blobs(message.job_id, message.blob_address, names)
            except PeerUnreachableError as error:
                if pause is None:
                    text = f"the job's code can't be fetched by TaskManager {self._owner.taskmanager_id}: {error}"
                    raise RpcFault(RpcCode.INTERNAL, text) from error
                logger.warning("job %s: %s; next try in %g s", message.job_id, error, pause)
                await asyncio.sleep(pause)
        raise AssertionError
