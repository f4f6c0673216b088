"""One application: a program and the jobs that it submits, from its beginning to its end. Pure: events in, orders out.

An application's way::

                              a job failed, or main() raised
    CREATED ---> RUNNING ----------------------------------> FAILING ---> FAILED
                   |   \\
                   |    `-----------------------------------> CANCELING --> CANCELED
                   |          somebody cancelled it, or one of its jobs
                   `---> FINISHED     main() has returned, and all jobs have ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from firesteel.core.errors import IllegalTransitionError, JobCancelledError, ProgramError
from firesteel.rest import types as t

NO_JOB: Final = f"{ProgramError.__module__}.{ProgramError.__qualname__}"
NO_JOB_TEXT: Final = "The application contains no execute() calls."
_CANCELLED: Final = f"{JobCancelledError.__module__}.{JobCancelledError.__qualname__}"
ENDED_JOBS: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})


class ApplicationState(StrEnum):
    """States of an application, with Flink's names."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"


ENDED: Final = frozenset({ApplicationState.FAILED, ApplicationState.CANCELED, ApplicationState.FINISHED})
MOVES: Final[Mapping[ApplicationState, frozenset[ApplicationState]]] = {
    ApplicationState.CREATED: frozenset(
        {ApplicationState.RUNNING, ApplicationState.FAILING, ApplicationState.CANCELING}
    ),
    ApplicationState.RUNNING: frozenset(
        {ApplicationState.FINISHED, ApplicationState.FAILING, ApplicationState.CANCELING}
    ),
    ApplicationState.FAILING: frozenset({ApplicationState.FAILED}),
    ApplicationState.CANCELING: frozenset({ApplicationState.CANCELED}),
    ApplicationState.FAILED: frozenset(),
    ApplicationState.CANCELED: frozenset(),
    ApplicationState.FINISHED: frozenset(),
}
"""Any other move is a bug."""


class ApplicationStep(StrEnum):
    """The next step of an application that its core asks the shell for."""

    END_MAIN = "END_MAIN"
    CANCEL_JOBS = "CANCEL_JOBS"
    """Cancel all jobs that have not ended."""


@dataclass(frozen=True)
class MainEnd:
    """How ``main()`` ended.

    Attributes:
        exit_code: of the process; negative: the number of the signal that killed it.
        error: traceback, or the end of the output; empty: none.
        error_class: class of the exception, with its module; empty: none.
    """

    exit_code: int
    error: str = ""
    error_class: str = ""


@dataclass
class Application:
    """A program that runs, or ran.

    Attributes:
        id: 32 hex digits.
        name: for people.
        state: present state.
        timestamps: state -> epoch ms at which it was entered.
        exceptions: in the shape of ``/applications/:applicationid/exceptions``, the oldest first.
        exit_code: of the command that waits for the application, once it has ended.
        jobs: last states of all jobs seen so far, since ended jobs may be forgotten elsewhere.
        terminate_on_any_job: whether one job that fails or is cancelled ends the application.
    """

    id: str
    name: str
    terminate_on_any_job: bool = True
    state: ApplicationState = ApplicationState.CREATED
    timestamps: dict[str, int] = field(default_factory=dict)
    exceptions: list[t.ApplicationExceptionInfo] = field(default_factory=list)
    exit_code: int | None = None
    jobs: dict[str, str] = field(default_factory=dict)
    _main_seen: bool = False

    @property
    def ended(self) -> bool:
        """Whether the application is over."""
        return self.state in ENDED

    def move(self, to: ApplicationState, now_ms: int) -> None:
        """Enter a state.

        Raises:
            IllegalTransitionError: the table has no such move.
        """
        if to not in MOVES[self.state]:
            raise IllegalTransitionError(f"application {self.id}: no move {self.state} -> {to}")
        self.state = to
        self.timestamps[to.value] = now_ms

    def cancel(self, now_ms: int) -> None:
        """A user cancels the application; one that is about to end anyway stays as it is."""
        if self.state in (ApplicationState.CREATED, ApplicationState.RUNNING):
            self.move(ApplicationState.CANCELING, now_ms)

    def failed_to_start(self, text: str, error_class: str, now_ms: int) -> None:
        """The process of the program could not be started."""
        self._note(error_class, text, now_ms)
        if self.state not in (ApplicationState.FAILING, ApplicationState.CANCELING):
            self.move(ApplicationState.FAILING, now_ms)
        self.move(
            ApplicationState.FAILED if self.state is ApplicationState.FAILING else ApplicationState.CANCELED, now_ms
        )
        self.exit_code = 1

    def look(self, main: MainEnd | None, jobs: Mapping[str, str], now_ms: int) -> list[ApplicationStep]:
        """Decide the next state and the next steps from the states of ``main()`` and of the jobs.

        Args:
            main: how ``main()`` ended; None = it runs.
            jobs: states of the application's jobs by id.
            now_ms: epoch milliseconds.
        """
        if self.ended:
            return []
        self.jobs.update(jobs)
        jobs = self.jobs
        bad = {job: state for job, state in jobs.items() if state in ("FAILED", "CANCELED")}
        if main is not None and not self._main_seen:
            self._main_seen = True
            self._main_ended(main, jobs, bad, now_ms)
        if self.state is ApplicationState.RUNNING and bad and self.terminate_on_any_job:
            self.move(ApplicationState.FAILING if "FAILED" in bad.values() else ApplicationState.CANCELING, now_ms)
        running = [job for job, state in jobs.items() if state not in ENDED_JOBS]
        if self.state is ApplicationState.RUNNING:
            if main is not None and not running:
                self._end(ApplicationState.FINISHED, 0, now_ms)
            return []
        orders = []
        if main is None:
            orders.append(ApplicationStep.END_MAIN)
        if running:
            orders.append(ApplicationStep.CANCEL_JOBS)
        if not orders:
            failed = self.state is ApplicationState.FAILING
            code = main.exit_code if main is not None and main.exit_code > 0 else 1
            self._end(ApplicationState.FAILED if failed else ApplicationState.CANCELED, code if failed else 0, now_ms)
        return orders

    def _main_ended(self, main: MainEnd, jobs: Mapping[str, str], bad: Mapping[str, str], now_ms: int) -> None:
        if main.exit_code == 0:
            if not jobs and self.state is ApplicationState.RUNNING:
                self._note(NO_JOB, NO_JOB_TEXT, now_ms)
                self.move(ApplicationState.FAILING, now_ms)
            return
        if self.state is ApplicationState.CANCELING:  # it was asked to end, so its exit code is no failure
            return
        self._note(main.error_class or "SystemExit", main.error, now_ms)
        if self.state is ApplicationState.RUNNING:
            cancelled = main.error_class == _CANCELLED and bad and "FAILED" not in bad.values()
            self.move(ApplicationState.CANCELING if cancelled else ApplicationState.FAILING, now_ms)

    def job_failed(self, job_id: str, error_class: str, stacktrace: str, now_ms: int) -> None:
        """Note the failure that ended a job of this application; a repeat changes nothing."""
        if all(entry.get("jobId") != job_id for entry in self.exceptions):
            self._note(error_class, stacktrace, now_ms, job_id)

    def _note(self, error_class: str, text: str, now_ms: int, job_id: str | None = None) -> None:
        self.exceptions.append({"exceptionName": error_class, "stacktrace": text, "timestamp": now_ms, "jobId": job_id})

    def _end(self, state: ApplicationState, exit_code: int, now_ms: int) -> None:
        self.move(state, now_ms)
        self.exit_code = exit_code

    def to_plain(self) -> dict[str, Any]:
        """The application as the store keeps it."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state.value,
            "timestamps": dict(self.timestamps),
            "exceptions": list(self.exceptions),
            "exit-code": self.exit_code,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Application:
        """An application from the store.

        Raises:
            KeyError, ValueError: the stored form is damaged.
        """
        return cls(
            id=str(plain["id"]),
            name=str(plain["name"]),
            state=ApplicationState(plain["state"]),
            timestamps=dict(plain["timestamps"]),
            exceptions=list(plain["exceptions"]),
            exit_code=plain["exit-code"],
        )
