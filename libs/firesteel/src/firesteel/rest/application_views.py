"""REST answers about applications: programs that the cluster runs with their jobs, and jobs that were submitted from
elsewhere, each of which is an application of its own, with the same id. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, cast, get_args

from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.picking import picked
from firesteel.rest.views import job_exceptions

_STATES: Final[dict[t.JobState, t.ApplicationState]] = {
    "INITIALIZING": "CREATED",
    "CREATED": "CREATED",
    "RUNNING": "RUNNING",
    "RESTARTING": "RUNNING",
    "SUSPENDED": "RUNNING",
    "RECONCILING": "RUNNING",
    "FAILING": "FAILING",
    "FAILED": "FAILED",
    "CANCELLING": "CANCELING",
    "CANCELED": "CANCELED",
    "FINISHED": "FINISHED",
}
_WORST: Final[tuple[t.ApplicationState, ...]] = (
    "RUNNING",
    "FAILING",
    "CANCELING",
    "CREATED",
    "FAILED",
    "CANCELED",
    "FINISHED",
)
"""The state of an application whose program is not known any more: the first of these that one of its jobs has."""
_ENDED: Final[frozenset[t.ApplicationState]] = frozenset({"FAILED", "CANCELED", "FINISHED"})


class ApplicationView(Protocol):
    """The part of an application that views show."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> StrEnum:
        """The current state, by Flink's name."""

    @property
    def timestamps(self) -> Mapping[str, int]:
        """State -> epoch ms at which it was entered."""

    @property
    def exceptions(self) -> Sequence[t.ApplicationExceptionInfo]:
        """Entries of the history, the oldest first."""

    @property
    def ended(self) -> bool:
        """Whether the application is over."""


def application_row(
    application_id: str, application: ApplicationView | None, jobs: Sequence[t.JobRow], now_ms: int
) -> t.ApplicationRow:
    """One item of /applications/overview.

    Args:
        application_id: 32 hex digits.
        application: its program; None = it was run elsewhere, or by a Dispatcher that is gone.
        jobs: items of /jobs/overview.
        now_ms: epoch.
    """
    status: t.ApplicationState
    if application is not None:
        status, name = cast(t.ApplicationState, application.state.value), application.name
        start = application.timestamps.get("CREATED", now_ms)
        end = application.timestamps[status] if application.ended else -1
    else:
        states = {_STATES[job["state"]] for job in jobs}
        status = next(state for state in _WORST if state in states)
        name, start = jobs[0]["name"], min(job["start-time"] for job in jobs)
        end = max(job["end-time"] for job in jobs) if states <= _ENDED else -1
    return {
        "id": application_id,
        "name": name,
        "start-time": start,
        "end-time": end,
        "duration": (end if end >= 0 else now_ms) - start,
        "status": status,
        "jobs": dict(Counter(job["state"] for job in jobs)),
    }


def application_details(
    application_id: str,
    application: ApplicationView | None,
    jobs: Sequence[t.JobRow],
    archives: Sequence[Archive],
    now_ms: int,
) -> t.ApplicationDetails:
    """/applications/:applicationid; ``archives`` are those of the jobs, and needed where there is no program."""
    row = application_row(application_id, application, jobs, now_ms)
    stamps = cast(dict[t.ApplicationState, int], dict.fromkeys(get_args(t.ApplicationState), 0))
    if application is not None:
        stamps |= cast(Mapping[t.ApplicationState, int], application.timestamps)
    else:
        for archive in archives:
            for job_state, at in archive["timestamps"].items():
                state = _STATES[job_state]
                # Several states of a job mean RUNNING: the first of them counts, of other states the last.
                if at and (state != "RUNNING" or not stamps[state] or at < stamps[state]):
                    stamps[state] = at
    return picked(t.ApplicationDetails, {**row, "timestamps": stamps, "jobs": list(jobs)})


def application_exceptions(application: ApplicationView | None, archives: Sequence[Archive]) -> t.ApplicationExceptions:
    """/applications/:applicationid/exceptions: what ended it. A failure that a restart followed is only the job's."""
    if application is not None:
        return {"exceptionHistory": {"entries": list(reversed(application.exceptions))}}
    entries = [
        picked(t.ApplicationExceptionInfo, {**failure, "jobId": archive["jid"]})
        for archive in archives
        if archive["state"] == "FAILED"
        for failure in job_exceptions(archive, 1)["exceptionHistory"]["entries"]
    ]
    return {"exceptionHistory": {"entries": entries}}
