"""How a host starts the process of a JobMaster: the host's side of the talk that ``job_process`` describes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.config import Settings
from firesteel.core.process import ProcessId
from firesteel.protocol import messages as m
from firesteel_jobmaster.order import GO, JobOrder
from firesteel_jobmaster.template_process import TemplateError, TemplateProcess

READY_SECONDS, START_SECONDS = 30.0, 30.0
"""How long the template may take to be ready, and then the process to listen and to begin."""
STATUS_SECONDS = 1.0
"""How long the template may take to report the end of a process whose connection has ended."""


class StartError(Exception):
    """A JobMaster could not be started; another try may work.

    Args:
        why: for people.
        process: the process that was told to go on, and may live; it has to end before the next one begins.
    """

    def __init__(self, why: str, process: ProcessId | None = None) -> None:
        super().__init__(why)
        self.process = process


class JobRefusedError(Exception):
    """The JobMaster does not run this job, and never will."""


@dataclass(frozen=True)
class StartedProcess:
    """A process of a JobMaster that runs its job.

    Attributes:
        process: the operating system's process.
        address, token: of the JobMaster.
        reader, writer: connection to the process, which the owner of this object closes.
    """

    process: ProcessId
    address: str
    token: str = field(repr=False)
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class JobStart:
    """Starts processes of JobMasters.

    Args:
        template: forks the processes.
        settings: of the cluster.
        secret: of the cluster.
        bind_host, advertised_host: where the JobMasters listen, and under which name others find them.
        run_directory: of the host.
        cluster_directory: where the files of JobMasters go.
    """

    def __init__(
        self,
        template: TemplateProcess,
        *,
        settings: Settings,
        secret: str,
        bind_host: str,
        advertised_host: str,
        run_directory: Path,
        cluster_directory: Path,
    ) -> None:
        self._template, self._settings, self._secret = template, settings, secret
        self._bind_host, self._advertised_host = bind_host, advertised_host
        self._run_directory, self._cluster_directory = run_directory, cluster_directory
        self._exits: dict[str, asyncio.Future[str]] = {}

    def process_ended(self, job_id: str, how_it_ended: str) -> None:
        """A process has ended; a start that is under way for this job hears of it."""
        exited = self._exits.get(job_id)
        if exited is not None and not exited.done():
            exited.set_result(how_it_ended)

    async def run(self, job_id: str, start: m.StartJob, log_file: Path) -> StartedProcess:
        """Start the process of a JobMaster.

        Args:
            job_id: of the job.
            start: the Dispatcher's order.
            log_file: of the process.

        Raises:
            JobRefusedError: the JobMaster refuses the job.
            StartError: the process could not be started.
        """
        order = JobOrder(
            self._settings.to_plain(),
            self._secret,
            self._bind_host,
            self._advertised_host,
            str(self._run_directory),
            str(self._cluster_directory),
            str(log_file),
            start.to_plain(),
        )
        self._exits[job_id] = asyncio.get_running_loop().create_future()
        try:
            connection = await self._template.fork(job_id, READY_SECONDS)
            reader, writer = await asyncio.open_connection(sock=connection)
        except TemplateError as error:
            del self._exits[job_id]
            raise StartError(str(error)) from error
        try:
            return await self._talk(job_id, order, reader, writer)
        except BaseException:
            writer.close()
            raise
        finally:
            del self._exits[job_id]

    async def _talk(
        self, job_id: str, order: JobOrder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> StartedProcess:
        heard, process = "nothing", None
        try:
            async with asyncio.timeout(START_SECONDS):
                writer.write(order.to_line())
                await writer.drain()
                listening = await self._answer(job_id, reader)
                heard = f"that it listens on {listening.get('listening')}"
                process = ProcessId(listening["pid"], listening["start_time"])
                writer.write(GO)
                await writer.drain()
                started = await self._answer(job_id, reader)
        except TimeoutError:
            if heard == "nothing":
                self._template.replace("did not fork a process in time")
            raise StartError(f"within {START_SECONDS:g} s it said {heard}", process) from None
        except OSError:
            raise StartError(f"its process {await self._exit(job_id)}") from None
        if "refused" in started:
            raise JobRefusedError(started["refused"])
        if "failed" in started:
            raise StartError(f"it could not begin: {started['failed']}", process)
        return StartedProcess(process, started["started"], started["token"], reader, writer)

    async def _answer(self, job_id: str, reader: asyncio.StreamReader) -> dict[str, Any]:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise StartError(f"its process {await self._exit(job_id)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _exit(self, job_id: str) -> str:
        """How the process ended."""
        try:
            return await asyncio.wait_for(asyncio.shield(self._exits[job_id]), STATUS_SECONDS)
        except TimeoutError:
            return "ended before it could begin"
