"""The program of a cluster in application mode at work; ``application_mode`` decides whether it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from firesteel.config import Settings
from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError, FileSystemError, ProgramError, class_name
from firesteel.rest.job_settings import is_for_jobs
from firesteel.service.background import first_of
from firesteel.service.cluster_status import StatusFile
from firesteel.service.retries import until_storage_answers
from firesteel_dispatcher.application import Application
from firesteel_dispatcher.application_mode import ApplicationSettings, Resumption, record_of, resume
from firesteel_dispatcher.applications import Applications
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.leadership import DispatcherLeadership
from firesteel_dispatcher.programs import ProgramOrder
from firesteel_dispatcher.rest_server import RestServer

logger = logging.getLogger(__name__)
_END_LOOK_PAUSE: Final = 0.1
"""Seconds between two looks at whether the application has ended."""
_FIRST_PAUSE, _LONGEST_STORE_PAUSE, _LONGEST_FETCH_PAUSE = 0.1, 2.0, 30.0
_STATUS: Final = CallPool("status file")


class ClusterApplication:
    """Runs the program of the cluster, stores how it is, and shows that to the supervisor of the services.

    Args:
        settings: of the application.
        cluster_settings: all settings of the cluster.
        status_file: where the supervisor looks; None: there is none.
        applications: runs the program.
        core: knows the jobs.
        leadership: has the store.
        rest: where the program submits its jobs.
        clock: dates changes.

    Attributes:
        record: what an earlier Dispatcher has stored of the application; None = nothing.
    """

    def __init__(
        self,
        settings: ApplicationSettings,
        cluster_settings: Settings,
        status_file: StatusFile | None,
        applications: Applications,
        core: DispatcherCore,
        leadership: DispatcherLeadership,
        rest: RestServer,
        clock: Clock,
    ) -> None:
        self._settings, self._cluster_settings, self._status_file = settings, cluster_settings, status_file
        self._applications, self._core, self._leadership = applications, core, leadership
        self._rest, self._clock = rest, clock
        self.record: Mapping[str, Any] | None = None
        self._has_ended = asyncio.Event()

    async def run(self, ended: Callable[[Application], None]) -> None:
        """Run the program; returns when it has ended and that is stored.

        Args:
            ended: called at the end.
        """
        try:
            ended(await self._run())
        finally:
            self._has_ended.set()

    async def wait(self, seconds: float) -> None:
        """Wait until ``run`` has returned, or for so many seconds."""
        await first_of(self._has_ended.wait(), asyncio.sleep(seconds))

    async def _run(self) -> Application:
        resumption = resume(self._settings, self.record, self._leadership.candidate.has_stood_by)
        if resumption.ended is not None:
            application = resumption.ended
            logger.info(
                "application %s has ended already, as %s: it is not run again", resumption.id, application.state
            )
            self._applications.keep(application)
            try:
                await self._show(record_of(self._settings, resumption.run, application))
            except OSError as error:
                logger.error("how the application has ended could not be shown: %s", error)
            return application
        if resumption.is_new and self._settings.job_id is not None:
            await self._forget_jobs(resumption.id)
        application = await self._begin(resumption)
        await self._store(resumption.run, application)
        while not application.ended:
            await asyncio.sleep(_END_LOOK_PAUSE)
        await self._store(resumption.run, application)
        return application

    async def _forget_jobs(self, application_id: str) -> None:
        """Make room for the jobs of a new run: with a configured job id, those of the run before have the same ids."""
        for job_id in [job.id for job in self._core.jobs.values() if job.ended]:
            if self._applications.of_job(job_id) == application_id:
                del self._core.jobs[job_id]
                await self._leadership.on_disk(self._leadership.store.forget, job_id)

    async def _begin(self, resumption: Resumption) -> Application:
        """Start the program; one that can't be started is an application that has failed."""
        settings = self._settings
        job_settings = {key: value for key, value in self._cluster_settings.to_plain().items() if is_for_jobs(key)}
        order = ProgramOrder("", settings.entry, settings.arguments, job_settings, resumption.id)
        try:
            order = await self._fetched(order, settings.program)
            return await self._applications.begin(order, self._rest.local_address, own=True)
        except (ConfigurationError, ProgramError) as error:
            logger.error("the program of this cluster can't be run: %s", error)
            application = Application(resumption.id, Path(settings.program).name)
            application.failed_to_start(str(error), class_name(error), self._clock.epoch_ms())
            self._applications.keep(application)
            return application

    async def _fetched(self, order: ProgramOrder, program: str) -> ProgramOrder:
        """The order with the program, and the files that travel with its jobs, on this host; a file system that does
        not answer is waited for."""
        programs = self._applications.programs

        async def fetch() -> ProgramOrder:
            path = await programs.fetched(program, self._cluster_settings)
            job_settings = await programs.dependencies_fetched(order.settings or {}, self._cluster_settings)
            return replace(order, path=path, settings=job_settings)

        problem, waits = f"the program {program} can't be read", pauses(_FIRST_PAUSE, _LONGEST_FETCH_PAUSE)
        return await until_storage_answers(problem, fetch, waits, (OSError, FileSystemError))

    async def _store(self, run: int, application: Application) -> None:
        """Store and show how the application is, until it works: the next Dispatcher decides by it."""
        record = record_of(self._settings, run, application)

        async def store() -> None:
            await self._leadership.on_disk(self._leadership.store.set_application, record)
            await self._show(record)

        waits = pauses(_FIRST_PAUSE, _LONGEST_STORE_PAUSE)
        await until_storage_answers("how the application is could not be stored", store, waits)

    async def _show(self, record: Mapping[str, Any]) -> None:
        if self._status_file is not None:
            await _STATUS.call(self._status_file.write, self._rest.address, record)
