"""REST answers about applications: programs that the cluster runs with their jobs, and jobs that were submitted from
elsewhere, each of which is an application of its own, with the same id. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

from firesteel.rest.views import Archive, job_exceptions

_STATES: Final = {
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
_WORST: Final = ("RUNNING", "FAILING", "CANCELING", "CREATED", "FAILED", "CANCELED", "FINISHED")
"""Of several jobs whose program nobody knows any more, the first of these is the state of the whole."""
_ENDED: Final = frozenset({"FAILED", "CANCELED", "FINISHED"})


class ApplicationView(Protocol):
    """What is shown of a program that a cluster runs, or ran."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> StrEnum:
        """Of now, with Flink's names."""

    @property
    def timestamps(self) -> Mapping[str, int]:
        """State -> epoch ms at which it was entered."""

    @property
    def exceptions(self) -> Sequence[Mapping[str, Any]]:
        """Entries of the history, the oldest first."""

    @property
    def ended(self) -> bool:
        """Whether it is over."""


def application_row(
    application_id: str, application: ApplicationView | None, jobs: Sequence[Mapping[str, Any]], now_ms: int
) -> dict[str, Any]:
    """One item of /applications/overview.

    Args:
        application_id: of it.
        application: its program; None = it was run elsewhere, or by a Dispatcher that is gone.
        jobs: items of /jobs/overview.
        now_ms: epoch.
    """
    if application is not None:
        status, name = application.state.value, application.name
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
    jobs: Sequence[Mapping[str, Any]],
    archives: Sequence[Archive],
    now_ms: int,
) -> dict[str, Any]:
    """/applications/:applicationid; ``archives`` are those of the jobs, and needed where there is no program."""
    row = application_row(application_id, application, jobs, now_ms)
    stamps = dict.fromkeys(dict.fromkeys(_STATES.values()), 0)
    if application is not None:
        stamps |= application.timestamps
    else:
        for state, at in (pair for archive in archives for pair in archive["timestamps"].items()):
            name = _STATES[state]
            if at and (name != "RUNNING" or not stamps[name] or at < stamps[name]):
                stamps[name] = at
    del row["jobs"]
    return {**row, "timestamps": stamps, "jobs": list(jobs)}


def application_exceptions(application: ApplicationView | None, archives: Sequence[Archive]) -> dict[str, Any]:
    """/applications/:applicationid/exceptions: what ended it; a failure that was followed by a restart is the job's."""
    if application is not None:
        return {"exceptionHistory": {"entries": list(reversed(application.exceptions))}}
    kept = ("exceptionName", "stacktrace", "timestamp")
    found = [
        {**{key: entry[key] for key in kept}, "jobId": archive["jid"]}
        for archive in archives
        if archive["state"] == "FAILED"
        for entry in job_exceptions(archive, 1)["exceptionHistory"]["entries"]
    ]
    return {"exceptionHistory": {"entries": found}}
