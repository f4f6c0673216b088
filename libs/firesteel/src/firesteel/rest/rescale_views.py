"""REST answers about rescaling. Pure.

The parallelism of a running job is fixed; in reactive mode it follows the slots that there are. In neither case can a
request change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.graph.job_archive import REACTIVE
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.checkpoint_views import summary
from firesteel.rest.picking import picked

_NONE: Final = -1


class NotAdaptiveError(FiresteelError):
    """Raised for what only Flink's adaptive scheduler can do."""


class UnknownRescaleError(FiresteelError):
    """A job has no such rescale."""


def requirements(archive: Archive) -> t.Requirements:
    """/jobs/:jobid/resource-requirements: both bounds are the parallelism; in reactive mode 1 and the largest one."""
    reactive = archive.get(REACTIVE)
    if reactive is not None:
        return {id_: {"parallelism": {"lowerBound": 1, "upperBound": most}} for id_, most in reactive["limits"].items()}
    return {
        vertex["id"]: {"parallelism": {"lowerBound": vertex["parallelism"], "upperBound": vertex["parallelism"]}}
        for vertex in archive["vertices"]
    }


def require(archive: Archive, bounds_of: Mapping[str, Any]) -> t.EmptyResponse:
    """PUT /jobs/:jobid/resource-requirements: bounds that the parallelism keeps are fulfilled.

    Raises:
        ConfigurationError: a vertex is missing or unknown, or a bound is malformed.
        NotAdaptiveError: the job would have to be rescaled.
    """
    vertices = {vertex["id"]: vertex for vertex in archive["vertices"]}
    for vertex_id in bounds_of:
        if vertex_id not in vertices:
            raise ConfigurationError(f"the job has no vertex {vertex_id}")
    for vertex_id, vertex in vertices.items():
        if vertex_id not in bounds_of:
            raise ConfigurationError(f"vertex {vertex_id} ({vertex['name']}) is missing: all have to be named")
        bounds = bounds_of[vertex_id]["parallelism"]
        least, most = bounds["lowerBound"], bounds["upperBound"]
        if least > most:
            raise ConfigurationError(f"vertex {vertex_id}: lowerBound {least} is above upperBound {most}")
        if most > vertex["maxParallelism"] > 0:
            raise ConfigurationError(
                f"vertex {vertex_id}: upperBound {most} is above its maximum parallelism {vertex['maxParallelism']}"
            )
        reactive = archive.get(REACTIVE)
        if reactive is not None and (least > 1 or most < reactive["limits"][vertex_id]):
            raise NotAdaptiveError(
                f"Vertex {vertex_id} takes all slots that there are, up to {reactive['limits'][vertex_id]}: the "
                "cluster is in reactive mode (scheduler-mode). Start or stop TaskManagers, or set the max parallelism."
            )
        if reactive is None and not least <= vertex["parallelism"] <= most:
            raise NotAdaptiveError(
                f"Vertex {vertex_id} has the parallelism {vertex['parallelism']}, and this scheduler can't rescale a "
                f"job that runs: stop it with a savepoint, and start it from that with another parallelism."
            )
    return {}


def _rescales(archive: Archive) -> Mapping[str, Any]:
    """The rescales that a job in reactive mode keeps; empty for other jobs."""
    return cast(Mapping[str, Any], archive.get(REACTIVE, {}).get("rescales", {}))


def _counts(archive: Archive) -> t.RescaleCounts:
    none = dict.fromkeys(t.RescaleCounts.__annotations__, 0)
    return picked(t.RescaleCounts, {**none, **_rescales(archive).get("counts", {})})


def rescales_overview(archive: Archive) -> t.RescalesOverview:
    """/jobs/:jobid/rescales/overview: counts, and the latest rescale of each outcome."""
    latest = _rescales(archive).get("latest", {})

    def shown(state: str) -> t.Rescale | None:
        return _rescale(archive, latest[state]) if latest.get(state) else None

    return {
        "rescalesCounts": _counts(archive),
        "latest": {"completed": shown("COMPLETED"), "failed": shown("FAILED"), "ignored": shown("IGNORED")},
    }


def rescales_history(archive: Archive) -> list[t.Rescale]:
    """/jobs/:jobid/rescales/history: the newest first; one that is under way has no end."""
    return [_rescale(archive, record) for record in _rescales(archive).get("history", ())]


def rescale_details(archive: Archive, query: Mapping[str, str]) -> t.Rescale:
    """/jobs/:jobid/rescales/details/:rescaleuuid: also the states of the scheduler meanwhile.

    Raises:
        UnknownRescaleError: there is no such rescale, or it is not kept any more.
    """
    rescale_id = query["rescale_id"]
    rescales = _rescales(archive)
    for record in (*rescales.get("history", ()), *rescales.get("latest", {}).values()):
        if record["id"] == rescale_id:
            return _rescale(archive, record, phases=True)
    why = "" if rescales else ": only jobs in reactive mode (scheduler-mode) are rescaled"
    raise UnknownRescaleError(f"No rescale {rescale_id[:80]!r} of job {archive['jid']} is kept{why}.")


def _rescale(archive: Archive, record: Mapping[str, Any], phases: bool = False) -> t.Rescale:
    rescales, limits = _rescales(archive), archive[REACTIVE]["limits"]
    vertices: dict[str, t.RescaledVertex] = {}
    slots: dict[str, t.RescaledSlots] = {}
    for vertex in archive["vertices"]:
        id_, group = vertex["id"], vertex["slotSharingGroupId"]
        before, after = record["before"].get(id_), record["after"].get(id_)
        vertices[id_] = {
            "jobVertexId": id_,
            "jobVertexName": vertex["name"],
            "slotSharingGroupId": group,
            "slotSharingGroupName": group,
            "desiredParallelism": limits[id_],
            "sufficientParallelism": rescales["least"][id_],
            "preRescaleParallelism": before,
            "postRescaleParallelism": after,
        }
        slot = slots.setdefault(
            group,
            {
                "slotSharingGroupId": group,
                "slotSharingGroupName": group,
                "requestResourceProfile": {},
                "desiredSlots": rescales["groups"][group],
                "minimalRequiredSlots": 1,
                "preRescaleSlots": None,
                "postRescaleSlots": None,
                "acquiredResourceProfile": {},
            },
        )
        # The vertices of a group share its slots: it needs as many as its widest vertex.
        if before is not None:
            slot["preRescaleSlots"] = max(slot["preRescaleSlots"] or 0, before)
        if after is not None:
            slot["postRescaleSlots"] = max(slot["postRescaleSlots"] or 0, after)
    return {
        "rescaleUuid": record["id"],
        "resourceRequirementsUuid": archive["jid"],
        "rescaleAttemptId": record["attempt"],
        "vertices": vertices,
        "slots": slots,
        "schedulerStates": [_phase(*phase) for phase in record["phases"]] if phases else [],
        "startTimestampInMillis": record["start"],
        "endTimestampInMillis": record["end"],
        "terminalState": record["state"],
        "triggerCause": record["cause"],
        "terminatedReason": record["reason"],
    }


def _phase(state: str, entered: int, left: int | None, error: str | None) -> t.SchedulerState:
    return {
        "state": state,
        "enterTimestampInMillis": entered,
        "leaveTimestampInMillis": left,
        "durationInMillis": None if left is None else left - entered,
        "stringifiedException": error,
    }


def rescales_summary(archive: Archive) -> t.RescalesSummary:
    """/jobs/:jobid/rescales/summary: durations of the rescales that are kept."""
    history = _rescales(archive).get("history", ())
    durations = [(record["state"], record["end"] - record["start"]) for record in history if record["end"] is not None]
    return {
        "rescalesCounts": _counts(archive),
        "rescalesDurationStatsInMillis": summary(duration for _, duration in durations),
        "completedRescalesDurationStatsInMillis": summary(ms for state, ms in durations if state == "COMPLETED"),
        "ignoredRescalesDurationStatsInMillis": summary(ms for state, ms in durations if state == "IGNORED"),
        "failedRescalesDurationStatsInMillis": summary(ms for state, ms in durations if state == "FAILED"),
    }


def rescales_config(archive: Archive) -> t.RescalesConfig:
    """/jobs/:jobid/rescales/config: -1 = there is no such setting here."""
    return picked(
        t.RescalesConfig,
        {
            **dict.fromkeys(t.RescalesConfig.__annotations__, _NONE),
            **archive.get(REACTIVE, {}).get("config", {}),
            "rescaleHistoryMax": _rescales(archive).get("max", 0),
            "schedulerExecutionMode": "REACTIVE" if REACTIVE in archive else None,
        },
    )
