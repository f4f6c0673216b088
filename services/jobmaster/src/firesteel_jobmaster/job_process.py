"""A process that runs the JobMaster of one job; forked by the template.

It talks with the host over a socket, in lines of JSON:

=============  ==================================================  ==================================================
from the host  ``{"settings", "secret", ...}`` (``JobOrder``)         first
to the host    ``{"listening": address, "pid", "start_time"}``     its RPC server is up; nothing runs yet
from the host  ``{"go": true}``                                    the host still wants it; else the socket just ends
to the host    ``{"started": address, "token"}``
          or   ``{"refused": why}``                                the job can't be run by anybody
          or   ``{"failed": why}``                                 another try may work
to the host    ``{"ended": state}``                                the end of the job is stored, and nothing is left
          or   ``{"crashed": what}``                                an exception that nobody expected ends the process
=============  ==================================================  ==================================================

A process that ends without the last of them was lost, as far as others are concerned: whoever hears of it sees to what
it has left.

A host that goes away after ``go`` changes nothing: the job goes on, and the file of the JobMaster tells the next host.
If nobody comes (no Dispatcher, no ResourceManager) and the job has no slots, the process ends after a while; the file
stays, and the next host has another JobMaster go on with the job.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import json
import logging
import os
import platform
import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from firesteel.checkpoint.store import CompletedCheckpointStore
from firesteel.config import Settings
from firesteel.core.backoff import pauses
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ConfigurationError, FencedError, FiresteelError, ProgramError
from firesteel.core.process import myself
from firesteel.core.secret import rest_token
from firesteel.ha.jobs import RecordedEnd
from firesteel.ha.services import (
    HighAvailabilityServices,
    LeaderRetrieval,
    Leadership,
    load_high_availability,
    load_retrieval,
    of_job,
)
from firesteel.protocol import messages as m
from firesteel.service.background import first_of
from firesteel.service.leaders import CHECK_SECONDS, LEADERSHIP
from firesteel.service.logs import configure_logging, setup_logging
from firesteel.service.otlp_logs import exported_logs
from firesteel.service.reporting import report_metrics
from firesteel.service.retries import until_storage_answers
from firesteel_jobmaster.app import JobMasterService
from firesteel_jobmaster.checkpoints.queue import in_a_thread
from firesteel_jobmaster.handover import JobAttempts, attempts_of
from firesteel_jobmaster.order import GO, JobOrder
from firesteel_jobmaster.registry import ProcessRegistry, RegisteredProcess
from firesteel_jobmaster.shell import JobMaster

logger = logging.getLogger(__name__)
LEAD_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between campaigns for the leadership of a job: a process that was killed takes a moment to go. One that does
not go, on another host say, is deposed then."""
LINGER_SECONDS = 5.0
"""Seconds for which a JobMaster whose job has ended answers late questions."""
CLOSE_SECONDS = 30.0
"""Seconds for which it waits until checkpoints that have to go are removed."""
EXIT_IN_ORDER, EXIT_FAILED = 0, 1


def run(connection: socket.socket) -> int:
    """Be the JobMaster of a job until its end; returns the exit code.

    Args:
        connection: to the host.
    """
    with connection.makefile("rb") as lines:
        line = lines.readline()
    if not line.endswith(b"\n"):
        return EXIT_IN_ORDER  # the host is gone before it said what to do
    order = JobOrder(**json.loads(line))
    _log_to(Path(order.log_file))
    # As long as somebody holds the lock, the run directory (with our log) is not taken for abandoned.
    lock = os.open(order.run_directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    with exported_logs(Settings.from_plain(order.settings), "jobmaster"):
        return asyncio.run(_JobProcess(order, connection).run())


def _log_to(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable()
    setup_logging(file=file)


class EndOnRecordError(FiresteelError):
    """The job has ended under a former JobMaster."""


class _JobProcess:
    def __init__(self, order: JobOrder, connection: socket.socket) -> None:
        self._order, self._connection = order, connection
        self._start = m.StartJob.from_plain(order.start)
        self._registry = ProcessRegistry(Path(order.cluster_directory))
        self._services: HighAvailabilityServices | None = None
        self._leadership: Leadership | None = None
        self._leaders: LeaderRetrieval | None = None
        self._stop = asyncio.Event()
        self._registering: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._crashed = False

    async def run(self) -> int:
        order, loop = self._order, asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        self._connection.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=self._connection)
        service_settings = Settings.from_plain(order.settings)
        configure_logging(service_settings)
        service = JobMasterService(
            settings=service_settings, secret=order.secret, clock=SystemClock(), takes_jobs=False
        )
        report_metrics(service, service_settings, (rest_token(order.secret),), has_ports=False, sends=False)
        try:
            address = await service.start(order.bind_host, 0, order.advertised_host)
            me = myself()
            self._tell({"listening": address, "pid": me.pid, "start_time": me.start})
            if await reader.readline() != GO:
                logger.warning("the host is gone, or does not want this JobMaster any more")
                return EXIT_IN_ORDER
            job = await self._make_job(service, service_settings)
            if job is None:
                return EXIT_IN_ORDER
            self._register(job)
            job.on_adopted = partial(self._register, job)
            job.start()
            self._tell({"started": job.address, "token": job.token})
            await self._until_the_end(service, job)
        finally:
            await service.stop()
            self._writer.close()
            if self._leaders is not None:
                self._leaders.close()
        return EXIT_FAILED if self._crashed or service.failure is not None else EXIT_IN_ORDER

    async def _make_job(self, service: JobMasterService, settings: Settings) -> JobMaster | None:
        """Make the JobMaster, which leads the job from now on; None: it can't, and the host was told why."""
        try:
            store = await self._lead()
            self._leaders = self._services or load_retrieval(settings)
            attempts = await in_a_thread(self._attempts)
        except (FiresteelError, OSError) as error:
            self._tell({"failed": str(error)})
            return None
        try:
            job = service.create_job(self._start, store, self._leaders, attempts)
        except (ProgramError, ConfigurationError) as error:
            self._tell({"refused": str(error)})
            return None
        except (FiresteelError, OSError) as error:
            self._tell({"failed": str(error)})
            return None
        job.core.logs = {"host": platform.node(), "jobmaster": self._order.log_file}
        try:
            if self._leadership is not None:
                leadership = self._leadership
                await in_a_thread(lambda: leadership.announce(job.address, job.token))
        except (FiresteelError, OSError) as error:
            self._tell({"failed": str(error)})
            return None
        return job

    async def _lead(self) -> CompletedCheckpointStore:
        """Lead the job from now on; returns the completed checkpoints of those who led it before.

        Raises:
            ConfigurationError: the high-availability services can't be used, or another one leads by now.
            OSError: they can't be used for now.
        """
        settings = Settings.from_plain(self._order.settings)
        services = load_high_availability(settings, Path(self._order.cluster_directory))
        services.join()
        self._services, job_id = services, str(self._start.job_graph["job_id"])
        for pause in LEAD_PAUSES:
            if (store := await self._campaign(services, job_id)) is not None:
                return store
            await asyncio.sleep(pause)
        logger.warning("another process leads job %s and does not go: it is deposed", job_id)
        await in_a_thread(lambda: services.depose(of_job(job_id)))
        if (store := await self._campaign(services, job_id)) is not None:
            return store
        raise ConfigurationError(f"another process leads job {job_id} by now")

    async def _campaign(self, services: HighAvailabilityServices, job_id: str) -> CompletedCheckpointStore | None:
        leadership = await in_a_thread(lambda: services.campaign(of_job(job_id)))
        if leadership is None:
            return None
        self._leadership = leadership
        return await in_a_thread(lambda: services.completed_checkpoints(job_id, leadership))

    async def _hold(self, leadership: Leadership, job: JobMaster) -> None:
        """Look from time to time whether this process still leads the job; returns when another one does."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await LEADERSHIP.call(leadership.poll)
            except FencedError as error:
                job.followed(str(error))
                return
            except Exception as error:  # high-availability services are plug-ins
                logger.warning("whether this process still leads job %s can't be read: %s", job.job_id, error)

    async def _orphaned(self, job: JobMaster) -> None:
        """Look from time to time whether anybody is there for the job; returns when nobody has been for too long."""
        while not job.is_orphan:
            await asyncio.sleep(CHECK_SECONDS)
        logger.error("job %s has no slots, and neither Dispatcher nor ResourceManager: this process ends", job.job_id)

    def _attempts(self) -> JobAttempts:
        """The attempts that former JobMasters of the job have used; blocks.

        Raises:
            EndOnRecordError: a former JobMaster has ended the job, which must not run again.
        """
        services, leadership, start = self._services, self._leadership, self._start
        assert services is not None
        assert leadership is not None
        job_id = str(start.job_graph["job_id"])
        # It is read by the process that leads, as a former JobMaster can't write an end any more.
        end = services.recorded_end(job_id)
        if end is not None and end.submitted_ms == start.submitted_ms:
            raise EndOnRecordError(f"job {job_id} has ended as {end.archive.get('state')}: its record says so")

        def record_end(archive: Mapping[str, Any]) -> None:
            services.record_end(leadership, RecordedEnd(start.submitted_ms, archive))

        return attempts_of(leadership, start.takeover, record_end)

    def _register(self, job: JobMaster) -> None:
        """Have the next host find this JobMaster, under the Dispatcher that leads now.

        A disk that is full or gone is waited for: the job needs no file to run.
        """
        if self._registering is not None:
            self._registering.cancel()
            self._registering = None
        entry = RegisteredProcess(job.job_id, myself(), job.address, job.token, job.start_message)
        try:
            self._registry.write(entry)
        except OSError:
            self._registering = asyncio.get_running_loop().create_task(
                self._register_later(entry), name="file for hosts"
            )

    async def _register_later(self, entry: RegisteredProcess) -> None:
        async def write() -> None:
            self._registry.write(entry)

        problem = "the file by which the next host finds this JobMaster can't be written"
        await until_storage_answers(problem, write, pauses(1.0, CLOSE_SECONDS))
        logger.info("the next host finds this JobMaster again")

    async def _until_the_end(self, service: JobMasterService, job: JobMaster) -> None:
        waits = [
            job.dispatcher.acknowledged.wait(), job.door.followed.wait(), job.door.crashed.wait(), self._stop.wait(),
            service.end_wanted(), self._orphaned(job),
        ]  # fmt: skip
        if self._leadership is not None:
            waits.append(self._hold(self._leadership, job))
        await first_of(*waits)
        if job.door.followed.is_set():
            logger.error("another JobMaster leads job %s: this process ends", job.job_id)
        elif job.door.crashed.is_set() or service.failure is not None:
            cause = job.door.crash_cause or f"failed: {type(service.failure).__qualname__}: {service.failure}"
            self._tell({"crashed": cause})
            logger.critical("the JobMaster of job %s %s: another one has to follow", job.job_id, cause)
            self._crashed = True
        elif job.dispatcher.acknowledged.is_set():
            await self._after_the_end(job)

    async def _after_the_end(self, job: JobMaster) -> None:
        if await self._is_clean(job) and job.is_over:
            if self._registering is not None:
                self._registering.cancel()  # there is nobody to be found any more
            try:
                if (services := self._services) is not None:
                    await in_a_thread(lambda: services.forget_job(job.job_id))
            except OSError as error:  # the Dispatcher does it, now or when it can
                logger.error("what is kept of job %s can't be removed: it is left to others: %s", job.job_id, error)
                return
            self._registry.remove_own(job.job_id, job.token)
            self._tell({"ended": job.core.state.name})
        else:
            logger.warning("job %s is left to others: its end was not taken, or it could not clean up", job.job_id)
        logger.info("job %s is over; late questions are answered for %g s", job.job_id, LINGER_SECONDS)
        await first_of(self._stop.wait(), asyncio.sleep(LINGER_SECONDS))

    async def _is_clean(self, job: JobMaster) -> bool:
        """Wait until checkpoints that had to go are removed; returns whether they are."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                is_clean = await job.checkpoints_closed()
                await job.notes.written()  # a write that is under way must not come behind the removal
                return is_clean
        except TimeoutError:
            logger.error("job %s: files of its checkpoints may be left: the storage does not answer", job.job_id)
            return False

    def _tell(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")
