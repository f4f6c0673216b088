"""A process that runs the JobMaster of one job; forked by the template.

It talks with the host over a socket, in lines of JSON:

=============  ==================================================  ==================================================
from the host  ``{"settings", "secret", ...}`` (``Order``)         first
to the host    ``{"listening": address, "pid", "start_time"}``     its RPC server is up; nothing runs yet
from the host  ``{"go": true}``                                    the host still wants it; else the socket just ends
to the host    ``{"started": address, "token"}`` or ``{"refused": why}``
to the host    ``{"ended": state}``                                the Dispatcher has acknowledged the end
=============  ==================================================  ==================================================

A host that goes away after ``go`` changes nothing: the job goes on, and the file of the JobMaster tells the next host.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import json
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

from firesteel.config import Settings
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FiresteelError
from firesteel.core.process import myself
from firesteel.protocol import messages as m
from firesteel.service.background import first_of
from firesteel.service.logs import setup_logging
from firesteel_jobmaster.app import JobMasterService
from firesteel_jobmaster.order import GO, Order
from firesteel_jobmaster.registry import Entry, Registry
from firesteel_jobmaster.shell import JobMaster

logger = logging.getLogger(__name__)
LINGER_SECONDS = 5.0
"""A JobMaster whose job has ended answers late questions for so long."""
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
    order = Order(**json.loads(line))
    _log_to(Path(order.log_file))
    # As long as somebody holds the lock, the run directory (with our log) is not taken for abandoned.
    lock = os.open(order.run_directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return asyncio.run(_JobProcess(order, connection).run())


def _log_to(file: Path) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable()
    setup_logging(file=file)


class _JobProcess:
    def __init__(self, order: Order, connection: socket.socket) -> None:
        self._order, self._connection = order, connection
        self._start = m.StartJob.from_plain(order.start)
        self._registry = Registry(Path(order.cluster_directory))
        self._stop = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> int:
        order, loop = self._order, asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        self._connection.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=self._connection)
        service = JobMasterService(
            settings=Settings.from_plain(order.settings), secret=order.secret, clock=SystemClock(), takes_jobs=False
        )
        try:
            address = await service.start(order.bind_host, 0, order.advertised_host)
            me = myself()
            self._tell({"listening": address, "pid": me.pid, "start_time": me.start})
            if await reader.readline() != GO:
                logger.warning("the host is gone, or does not want this JobMaster any more")
                return EXIT_IN_ORDER
            try:
                job = service.create_job(self._start)
            except FiresteelError as error:
                self._tell({"refused": str(error)})
                return EXIT_IN_ORDER
            self._register(job)
            job.on_adopted = lambda: self._register(job)
            job.start()
            self._tell({"started": job.address, "token": job.token})
            await self._until_the_end(service, job)
        finally:
            await service.stop()
            self._writer.close()
        return EXIT_IN_ORDER if service.failure is None else EXIT_FAILED

    def _register(self, job: JobMaster) -> None:
        self._registry.write(Entry(job.job_id, myself(), job.address, job.token, job.start_message))

    async def _until_the_end(self, service: JobMasterService, job: JobMaster) -> None:
        await first_of(job.acknowledged.wait(), self._stop.wait(), service.end_wanted())
        if job.acknowledged.is_set():
            self._registry.remove(job.job_id)
            self._tell({"ended": job.core.state.name})
            logger.info("job %s is over; late questions are answered for %g s", job.job_id, LINGER_SECONDS)
            try:
                async with asyncio.timeout(LINGER_SECONDS):
                    await self._stop.wait()
            except TimeoutError:
                pass

    def _tell(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")
