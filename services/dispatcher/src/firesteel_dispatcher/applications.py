"""Runs applications: starts their programs, follows their jobs, and ends both when one of them fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

from firesteel.config import options
from firesteel.core.errors import FiresteelError, class_name
from firesteel.core.ids import new_job_id
from firesteel_dispatcher.application import ENDED_JOBS, Application, ApplicationState, ApplicationStep, MainEnd
from firesteel_dispatcher.core import DispatcherCore
from firesteel_dispatcher.job import JobEndedError, UnknownJobError
from firesteel_dispatcher.programs import Main, ProgramOrder, UploadedPrograms

logger = logging.getLogger(__name__)
_LOOK: Final = 0.2
"""Seconds between two looks at the jobs of an application."""
_OWN_END: Final = 5.0
"""Seconds in which a program may end by itself after one of its jobs has failed; then it gets a SIGTERM."""
_MOST_KILLS: Final = 3
"""Times that the program of a cluster in application mode is run again after a kill from outside."""
KEPT_ENDED: Final = 100
"""Ended applications that a session keeps, with their exceptions."""


class Applications:
    """All applications of a cluster whose programs it runs, or ran.

    Args:
        programs: uploaded programs; starts their processes.
        core: knows the jobs.
        cancel: cancels a job; the second argument says for whom.
        failure_of: class and stack trace of the failure that ended a job, by job id.
        spawn: runs work in the background.
        now_ms: epoch milliseconds.
        terminate_on_any_job: default of applications that do not set it.

    Attributes:
        known: applications by id, the oldest first.
    """

    def __init__(
        self,
        programs: UploadedPrograms,
        core: DispatcherCore,
        cancel: Callable[[str, str], Awaitable[None]],
        failure_of: Callable[[str], Awaitable[tuple[str, str] | None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None] | None],
        now_ms: Callable[[], int],
        terminate_on_any_job: bool,
    ) -> None:
        self.programs, self._core, self._cancel_job, self._failure_of = programs, core, cancel, failure_of
        self._spawn, self._now_ms, self._terminate_on_any_job = spawn, now_ms, terminate_on_any_job
        self._jobs: dict[str, str] = {}
        self._cancelled_by: dict[str, str] = {}
        """Who has cancelled an application, by its id."""
        self.known: dict[str, Application] = {}

    # -- jobs

    def submitted(self, job_id: str, config: Mapping[str, str]) -> None:
        """A job became known; its settings name the application that has submitted it."""
        application_id = config.get(options.APPLICATION_ID.key)
        if application_id:
            self._jobs[job_id] = application_id

    def of_job(self, job_id: str) -> str:
        """The id of a job's application; a job that no application has submitted is an application by itself."""
        return self._jobs.get(job_id, job_id)

    def holds(self, job_id: str) -> bool:
        """Whether a job must not be forgotten: its application has not ended, and may ask for it again."""
        application = self.known.get(self._jobs.get(job_id, ""))
        return application is not None and not application.ended

    def jobs_of(self, application_id: str) -> list[str]:
        """Ids of the known jobs of an application, in the order of submission."""
        self._jobs = {job: owner for job, owner in self._jobs.items() if job in self._core.jobs}
        job_ids = [job for job, owner in self._jobs.items() if owner == application_id]
        is_job = application_id in self._core.jobs and self.of_job(application_id) == application_id
        return job_ids if application_id in job_ids or not is_job else [application_id, *job_ids]

    # -- applications

    async def begin(self, order: ProgramOrder, rest_address: str, *, own: bool = False) -> Application:
        """Run a program as an application; returns before it has started.

        Args:
            order: names the program; its ``job_id`` is the application's id.
            rest_address: base URL of the REST API, where the program submits its jobs.
            own: whether this is the program of a cluster in application mode, which may submit known jobs again.

        Raises:
            UnknownProgramError, BusyError, ConfigurationError: as they say.
        """
        named = replace(order, job_id=order.job_id or str(new_job_id()))
        assert named.job_id is not None
        await self.programs.check(named)
        name = named.path.name if named.path is not None else named.program.partition("_")[2]
        terminate = (named.settings or {}).get(options.TERMINATE_APPLICATION_ON_ANY_JOB.key)
        application = Application(
            named.job_id, name, self._terminate_on_any_job if terminate is None else terminate.lower() != "false"
        )
        application.timestamps[ApplicationState.CREATED.value] = self._now_ms()
        self.keep(application)
        make = lambda: self.programs.main(named, rest_address, own=own)  # noqa: E731
        self._spawn(self._run(application, make, _MOST_KILLS if own else 0), f"application {application.id}")
        return application

    def keep(self, application: Application) -> None:
        """Show an application from now on; the oldest ended ones are dropped."""
        self.known.pop(application.id, None)
        self.known[application.id] = application
        ended_ids = [id_ for id_, known in self.known.items() if known.ended]
        for id_ in ended_ids[:-KEPT_ENDED]:
            del self.known[id_]
            self._cancelled_by.pop(id_, None)

    async def cancel(self, application_id: str, by: str = "") -> None:
        """Cancel an application with its jobs.

        Args:
            application_id: of the application.
            by: who asks for it, and from which address.

        Raises:
            UnknownJobError: there is no such application.
            JobEndedError: it has ended.
        """
        application = self.known.get(application_id)
        if application is not None:
            if application.ended:
                raise JobEndedError(f"Application {application_id} has already ended as {application.state}")
            logger.info("application %s (%s) is cancelled", application.id, application.name)
            application.cancel(self._now_ms())
            self._cancelled_by[application_id] = by
            return
        jobs = self.jobs_of(application_id)
        if not jobs:
            raise UnknownJobError(f"Application {application_id} not found")
        running = [job for job in jobs if not self._core.jobs[job].ended]
        if not running:
            raise JobEndedError(f"Application {application_id} has already ended")
        await self._cancel_jobs(running, by)

    async def _cancel_jobs(self, jobs: list[str], by: str) -> None:
        for job in jobs:
            try:
                await self._cancel_job(job, by)
            except (JobEndedError, UnknownJobError):
                continue

    async def _run(self, application: Application, make: Callable[[], Main], kills: int) -> None:
        while not application.ended:
            kills -= 1
            await self._run_once(application, make, kills >= 0)
        log = logger.info if application.state is ApplicationState.FINISHED else logger.warning
        log("application %s (%s) is %s", application.id, application.name, application.state)

    async def _run_once(self, application: Application, make: Callable[[], Main], again: bool) -> None:
        """Run the program until the application has ended, or until its process was killed and may be run ``again``."""
        try:
            main = make()
            await main.start()
        except (FiresteelError, OSError) as error:
            logger.error("application %s (%s) can't be run: %s", application.id, application.name, error)
            application.failed_to_start(str(error), class_name(error), self._now_ms())
            return
        try:
            if application.state is ApplicationState.CREATED:
                application.move(ApplicationState.RUNNING, self._now_ms())
            logger.info("application %s (%s) runs as process %d", application.id, application.name, main.pid)
            await self._follow(application, main, again)
        finally:
            await main.end()

    async def _follow(self, application: Application, main: Main, again: bool) -> None:
        ending_since: float | None = None
        cancelled = set[str]()
        end: MainEnd | None = None
        while not application.ended:
            if again and main.was_killed and application.state is ApplicationState.RUNNING:
                text = "main() of application %s (%s) was killed; it is run again, and finds its jobs"
                logger.warning(text, application.id, application.name)
                return
            if end is None and (end := main.ended()) is not None and end.exit_code != 0 and end.error:
                logger.error("main() of application %s (%s) failed:\n%s", application.id, application.name, end.error)
            jobs = {job: self._core.jobs[job].state for job in self.jobs_of(application.id)}
            await self._note_failures(application, jobs)
            for order in application.look(end, jobs, self._now_ms()):
                if order is ApplicationStep.CANCEL_JOBS:
                    running = [job for job, state in jobs.items() if state not in ENDED_JOBS and job not in cancelled]
                    cancelled.update(running)
                    by = self._cancelled_by.get(application.id, "") or "its application, which ends"
                    await self._cancel_jobs(running, by)
                elif ending_since is None:
                    ending_since = time.monotonic()
                elif application.state is ApplicationState.CANCELING or time.monotonic() - ending_since > _OWN_END:
                    await main.tell_to_end()
            if not application.ended:
                await main.wait(_LOOK)

    async def _note_failures(self, application: Application, jobs: Mapping[str, str]) -> None:
        for job, state in jobs.items():
            if state == "FAILED" and all(entry.get("jobId") != job for entry in application.exceptions):
                failure = await self._failure_of(job)
                if failure is not None:
                    application.job_failed(job, *failure, self._now_ms())
