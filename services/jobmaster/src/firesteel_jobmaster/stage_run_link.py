"""Has the ResourceManager run the stages of a bounded job, and looks how they go."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from dataclasses import replace

from firesteel.core.backoff import pauses
from firesteel.core.errors import RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.stages import RunLook, StageProgress
from firesteel.service.lanes import Spawn
from firesteel.service.retries import FIRST_PAUSE
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.event_door import EventDoor
from firesteel_jobmaster.resourcemanager import JobMasterResourceManagerLink

logger = logging.getLogger(__name__)
LONGEST_PAUSE = 5.0
"""Seconds between two tries of a call that was not answered."""
LOOK_PAUSES = (0.03, 0.5)
"""Seconds between two looks, at first and later."""


class StageRunLink:
    """Follows one run at a time; the core hears how far the run has come.

    Args:
        door: of the core.
        token: of the JobMaster.
        resourcemanager: through which Spark runs the stages.
        blob_address: where the job's blobs are, as of now.
        spawn: runs what goes on until the job ends.
    """

    def __init__(
        self,
        door: EventDoor,
        token: str,
        resourcemanager: JobMasterResourceManagerLink,
        blob_address: Callable[[], str],
        spawn: Spawn,
    ) -> None:
        self._door, self._token, self._resourcemanager = door, token, resourcemanager
        self._job_id = door.core.graph.job_graph.job_id
        self._blob_address, self._spawn = blob_address, spawn
        self._wanted = ""
        """Id of the run that the core wants; empty: none."""

    def run(self, order: do.StartStageRun) -> None:
        """Have stages run, and tell the core how they go."""
        self._wanted = order.run_id
        self._spawn(self._follow(order), f"stages {order.run_id}")

    def drop(self, run_id: str) -> None:
        """The core does not want a run any more: Spark stops it."""
        if self._wanted == run_id:
            self._wanted = ""
        self._spawn(self._drop(run_id), f"end of stages {run_id}")

    def silence(self) -> None:
        """The JobMaster has crashed: it follows no run any more."""
        self._wanted = ""

    async def _drop(self, run_id: str) -> None:
        try:
            await self._resourcemanager.gateway().drop_stages(self._ref(run_id))
        except RpcError as error:
            logger.warning("stages %s may be left in Spark: %s", run_id, error)

    def _ref(self, run_id: str, offset: int = 0) -> m.StageRunRef:
        return m.StageRunRef(self._job_id, run_id, offset, self._token)

    async def _follow(self, order: do.StartStageRun) -> None:
        run_id = order.run_id
        message = m.RunStages(
            self._job_id,
            run_id,
            order.description,
            order.cores,
            tuple(stage.to_plain() for stage in order.stages),
            order.blobs,
            self._blob_address(),
            self._token,
        )
        waits = pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while self._wanted == run_id:
            try:
                await self._resourcemanager.gateway().run_stages(message)
                break
            except RpcError as error:  # the ResourceManager, the fleet or the Dispatcher may come back
                if isinstance(error, RpcFault) and error.code is RpcCode.BAD_REQUEST:
                    self._door.handle(self._door.core.stages_failed, run_id, str(error))
                    return
                logger.warning("stages can't be started, which is tried again: %s", error)
            await asyncio.sleep(next(waits))
        await self._watch(run_id)

    async def _watch(self, run_id: str) -> None:
        pause, longest = LOOK_PAUSES
        silent = pauses(FIRST_PAUSE, LONGEST_PAUSE)
        complete_stages: tuple[str, ...] = ()
        while self._wanted == run_id:
            try:
                ref = replace(self._ref(run_id), known=complete_stages)
                look = await self._resourcemanager.gateway().look_at_stages(ref)
                if look.state == "done":
                    results = await self._results(run_id)
                    if self._wanted == run_id:
                        self._door.handle(self._door.core.stages_ended, run_id, results)
                    return
            except RpcError as error:
                logger.warning("nobody says how stages go, which is asked again: %s", error)
                await asyncio.sleep(next(silent))
                continue
            if self._wanted != run_id:
                return
            if look.state == "failed":
                self._door.handle(self._door.core.stages_failed, run_id, look.message)
                return
            if look.state == "unknown":
                self._door.handle(self._door.core.stages_lost, run_id)
                return
            progress = {stage: StageProgress.from_plain(plain) for stage, plain in look.progress.items()}
            complete_stages = tuple(stage for stage, stage_progress in progress.items() if stage_progress.is_complete)
            self._door.handle(self._door.core.stages_seen, run_id, RunLook(look.state, "", progress, look.pages))
            await asyncio.sleep(pause)
            pause = min(longest, pause * 1.2)

    async def _results(self, run_id: str) -> list[bytes]:
        results: list[bytes] = []
        while True:
            page = await self._resourcemanager.gateway().stage_results(self._ref(run_id, len(results)))
            results += [base64.b64decode(text) for text in page.results]
            if page.end:
                return results
