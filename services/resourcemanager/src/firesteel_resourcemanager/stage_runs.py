"""Runs of bounded stages: brings the fleet what JobMasters want, and JobMasters what came of it.

Nothing in here looks into blobs or results: they are for tasks and for clients.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable

import aiohttp

from firesteel.core.clock import Clock
from firesteel.core.errors import FleetError, PeerUnreachableError, RpcError
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.stages import Places, Stage, StageRun
from firesteel.rpc import Signer
from firesteel_resourcemanager.fleet_driver import FleetDriver

_LIMITS = aiohttp.ClientTimeout(total=50.0, sock_connect=5.0, sock_read=10.0)
_ANSWER_BYTES = 4 << 20
"""Bytes of results in one answer, about; a larger result is alone in its answer."""


class StageRuns:
    """Has the fleet run stages of bounded jobs, for their JobMasters.

    Args:
        fleet: that runs the stages.
        places: where tasks of a job may be now; None = anywhere.
        session: for calls to the Dispatcher.
        secret: of the cluster; signs these calls.
        clock: stamps them.
    """

    def __init__(
        self,
        fleet: FleetDriver,
        places: Callable[[str], Places | None],
        session: Callable[[], aiohttp.ClientSession],
        secret: str,
        clock: Clock,
    ) -> None:
        self._fleet, self._places = fleet, places
        self._session, self._signer = session, Signer(secret, clock)
        self._results: dict[str, list[bytes]] = {}

    async def run(self, message: m.RunStages) -> None:
        """Have stages run.

        Raises:
            RpcFault: the fleet does not run, or refuses.
            RpcError: a blob can't be fetched.
        """
        fetched = await asyncio.gather(*(self._fetch(message.blob_address, name) for name in message.blobs))
        blobs = dict(zip(message.blobs, fetched, strict=True))
        stages = tuple(Stage.from_plain(plain) for plain in message.stages)
        job_id = message.job_id
        run = StageRun(message.run_id, job_id, message.description, message.cores, stages, blobs, self._places(job_id))
        try:
            await self._fleet.start_stages(run)
        except FleetError as error:
            raise _unavailable(error) from error

    async def look(self, message: m.StageRunRef) -> m.StageRunLook:
        """How a run goes, whose tasks are where the job has slots now.

        Raises:
            RpcFault: the fleet does not run, or does not answer.
        """
        try:
            run_look = await self._fleet.look_at_stages(message.run_id, self._places(message.job_id), message.known)
        except FleetError as error:
            raise _unavailable(error) from error
        progress = {stage: stage_progress.to_plain() for stage, stage_progress in run_look.progress.items()}
        return m.StageRunLook(run_look.state, run_look.message, progress, run_look.pages)

    async def results(self, run_id: str, offset: int) -> m.StageRunResults:
        """Results of a run's tasks, from ``offset`` on.

        Raises:
            RpcFault: the fleet does not run, or does not answer.
        """
        if run_id not in self._results:
            try:
                self._results[run_id] = await self._fleet.stage_results(run_id)
            except FleetError as error:
                raise _unavailable(error) from error
        page: list[str] = []
        size = 0
        everything = self._results[run_id]
        for result in everything[offset:]:
            if page and size + len(result) > _ANSWER_BYTES:
                break
            size += len(result)
            page.append(base64.b64encode(result).decode())
        return m.StageRunResults(tuple(page), offset + len(page) >= len(everything))

    async def drop(self, run_id: str) -> None:
        """End a run, and remove what it has left."""
        self._results.pop(run_id, None)
        await self._fleet.drop_stages(run_id)

    async def job_left(self, job_id: str) -> None:
        """The job has ended, or its JobMaster was lost: end all its runs."""
        for run_id in [run_id for run_id in self._results if run_id.startswith(job_id)]:
            del self._results[run_id]
        await self._fleet.drop_stages_of(job_id)

    async def _fetch(self, address: str, name: str) -> bytes:
        url = f"{address.rstrip('/')}/blobs/{name}"
        try:
            async with self._session().get(
                url, headers=self._signer.headers("GET", url), timeout=_LIMITS, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise RpcError(f"{url}: answered {answer.status}: {(await answer.text())[:300]}")
                content = await answer.read()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise PeerUnreachableError(f"{url}: {str(error) or type(error).__name__}") from error
        if hashlib.sha256(content).hexdigest() != name:
            raise RpcError(f"{url}: what came has another SHA-256")
        return content


def _unavailable(error: FleetError) -> RpcFault:
    return RpcFault(RpcCode.INTERNAL, str(error))
