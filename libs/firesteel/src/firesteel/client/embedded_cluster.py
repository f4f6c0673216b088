"""The embedded cluster: the four services, talking HTTP over loopback, and Spark's workers, all below this process."""

from __future__ import annotations

import logging
import os
import secrets
from typing import Any, Final

import aiohttp

from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import RestClient
from firesteel.config import options
from firesteel.config.load import CONF_DIR_VARIABLE
from firesteel.config.settings import Settings
from firesteel.core import plugins
from firesteel.core.clock import SystemClock
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import rest_token
from firesteel.ha.memory import MemoryServices
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.messages import SetSlots
from firesteel.protocol.provider import Provider
from firesteel.rpc.client import RpcClient
from firesteel.service.leaving import Leaving
from firesteel.service.reporting import report_metrics
from firesteel.spark.embedded import EmbeddedFleet
from firesteel.spark.mains import SLOT_MAIN, STAGE_MAIN

logger = logging.getLogger(__name__)

_TASKMANAGER_ID: Final = "embedded"
_TASK_PLACES: Final = 1024
"""Tasks that the embedded Spark would run at once: slots are counted by the ResourceManager, not by Spark."""
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0
"""Seconds for the services to end in order; the fleet ends in any case."""


class EmbeddedCluster:
    """All services in one background thread.

    Args:
        settings: of the cluster.
        slots: how many slots it begins with.
    """

    def __init__(self, settings: Settings, slots: int) -> None:
        self.pid = os.getpid()
        self.slots = slots
        self._settings = settings
        self._secret = secrets.token_hex(32)
        self._loop = LoopThread("firesteel-cluster")
        self._services: list[Any] = []
        self._resourcemanager_address = ""
        self._run_directory: RunDirectory | None = None
        self._fleet: EmbeddedFleet | None = None
        self._ha: MemoryServices | None = None
        self.rest_token = ""
        self.rest: RestClient | None = None
        try:
            self._loop.run(self._start(), timeout=_START_SECONDS)
        except OSError as error:  # a port that is taken, a disk that is full, the time limit
            self.stop()
            reason = error.strerror or str(error) or f"it took more than {_START_SECONDS:g} s"
            raise FleetError(f"the cluster inside this process did not start: {reason}") from error
        except BaseException:
            self.stop()
            raise

    @property
    def loop(self) -> LoopThread:
        """Where the services and the REST client live."""
        return self._loop

    async def _start(self) -> None:
        settings, secret, clock = self._settings, self._secret, SystemClock()
        self._run_directory = RunDirectory.create(settings.get(options.RUN_DIRECTORY))
        fleet = self._fleet = EmbeddedFleet(
            slots=_TASK_PLACES,
            spare_cores=settings.get(options.SPARK_SPARE_CORES),
            ui=settings.get(options.SPARK_UI),
            slot_main=SLOT_MAIN,
            stage_main=STAGE_MAIN,
            run_directory=self._run_directory,
            java_home=settings.get(options.JAVA_HOME),
            archive=settings.get(options.JVM_ARCHIVE),
            make_archive=settings.get(options.JVM_ARCHIVE_IN_BACKGROUND),
        )
        provider = Provider(fleet, is_embedded=True)
        common = {"settings": settings, "secret": secret, "clock": clock}
        self._ha = ha = MemoryServices(settings, self._run_directory.path)
        resourcemanager = plugins.load("firesteel.services", "resourcemanager")(**common, provider=provider, ha=ha)
        await self._run(resourcemanager)
        self._resourcemanager_address = resourcemanager.address
        taskmanager = plugins.load("firesteel.services", "taskmanager")(
            **common,
            run_directory=self._run_directory,
            taskmanager_id=_TASKMANAGER_ID,
            slots=self.slots,
            leaders=ha,
        )
        await self._run(taskmanager)
        jobmaster = plugins.load("firesteel.services", "jobmaster")(**common, ha=ha)
        await self._run(jobmaster)
        dispatcher = plugins.load("firesteel.services", "dispatcher")(
            **common,
            ha=ha,
            config_directory=os.environ.get(CONF_DIR_VARIABLE),
        )
        await self._run(dispatcher)
        self.rest_token = rest_token(secret)
        self.rest = RestClient(dispatcher.rest.address, self.rest_token)

    async def _run(self, service: Any) -> None:
        self._services.append(service)
        # The Dispatcher sends what JobMasters measure.
        report_metrics(service, self._settings, (rest_token(self._secret),), sends=service.name != "jobmaster")
        await service.start("127.0.0.1", 0)

    def ensure_slots(self, count: int) -> None:
        """Let the cluster have at least this many slots."""
        if count > self.slots:
            self._loop.run(self._set_slots(count), timeout=10)
            self.slots = count

    async def _set_slots(self, count: int) -> None:
        async with aiohttp.ClientSession() as session:
            rpc = RpcClient(session, self._secret, SystemClock())
            gateway = ResourceManagerGateway(rpc, self._resourcemanager_address)
            await gateway.set_slots(SetSlots(_TASKMANAGER_ID, count))

    def stop(self) -> None:
        """End all jobs, slots and services, and leave nothing behind. Idempotent; does nothing in a forked child."""
        if os.getpid() != self.pid:
            return
        try:
            self._loop.run(self._stop(), timeout=_STOP_SECONDS)
        except TimeoutError:
            left = ", ".join(type(service).__name__ for service in reversed(self._services))
            logger.warning("the embedded cluster did not stop within %g s; it is cut off: %s", _STOP_SECONDS, left)
        finally:
            try:
                self._loop.close()
            except TimeoutError:
                logger.warning("what the embedded cluster was doing does not end; its thread is left alone")
            if self._fleet is not None:  # a service that hangs must not leave the JVM behind
                self._fleet.stop()
            if self._run_directory is not None:
                self._run_directory.remove()

    async def _stop(self) -> None:
        if self.rest is not None:
            await self.rest.close()
        while self._services:
            await self._services[-1].stop(Leaving.END_ALL)
            self._services.pop()
        if self._ha is not None:
            self._ha.close()
