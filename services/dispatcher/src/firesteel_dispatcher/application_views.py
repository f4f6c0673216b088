"""REST answers about applications: here each job is an application of its own, with the same id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.rest.views import Archive, job_exceptions, job_overview

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


def application_row(overview: Mapping[str, Any]) -> dict[str, Any]:
    """One item of /applications/overview, of one of /jobs/overview."""
    return {
        "id": overview["jid"],
        "name": overview["name"],
        "start-time": overview["start-time"],
        "end-time": overview["end-time"],
        "duration": overview["duration"],
        "status": _STATES[overview["state"]],
        "jobs": {overview["state"]: 1},
    }


def application_details(archive: Archive) -> dict[str, Any]:
    """/applications/:applicationid."""
    overview = job_overview(archive)
    row = application_row(overview)
    stamps = dict.fromkeys(dict.fromkeys(_STATES.values()), 0)
    for state, at in archive["timestamps"].items():
        name = _STATES[state]
        if at and (name != "RUNNING" or not stamps[name] or at < stamps[name]):
            stamps[name] = at
    del row["jobs"]
    return {**row, "timestamps": stamps, "jobs": [overview]}


def application_exceptions(archive: Archive) -> dict[str, Any]:
    """/applications/:applicationid/exceptions: what ended it; a failure that was followed by a restart is the job's."""
    if archive["state"] != "FAILED":
        return {"exceptionHistory": {"entries": []}}
    entries = job_exceptions(archive, 1)["exceptionHistory"]["entries"]
    kept = ("exceptionName", "stacktrace", "timestamp")
    return {
        "exceptionHistory": {"entries": [{**{key: e[key] for key in kept}, "jobId": archive["jid"]} for e in entries]}
    }
