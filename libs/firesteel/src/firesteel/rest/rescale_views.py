"""REST answers about rescaling. Pure.

The parallelism of a job that runs is fixed, and they say so; in reactive mode it follows the slots that there are, and
nobody can say another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.graph.job_archive import REACTIVE
from firesteel.rest.checkpoint_views import summary
from firesteel.rest.views import Archive

_COUNTS: Final = {"ignored": 0, "inProgress": 0, "completed": 0, "failed": 0}
_STATES: Final = ("COMPLETED", "IGNORED", "FAILED")
_NONE: Final = -1


class NotAdaptiveError(FiresteelError):
    """Only Flink's adaptive scheduler can do that."""


class UnknownRescaleError(FiresteelError):
    """A job has no such rescale."""


def requirements(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/resource-requirements: both bounds are the parallelism; in reactive mode 1 and the largest one."""
    reactive = archive.get(REACTIVE)
    if reactive is not None:
        return {id_: {"parallelism": {"lowerBound": 1, "upperBound": most}} for id_, most in reactive["limits"].items()}
    return {
        vertex["id"]: {"parallelism": {"lowerBound": vertex["parallelism"], "upperBound": vertex["parallelism"]}}
        for vertex in archive["vertices"]
    }


def require(archive: Archive, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """PUT /jobs/:jobid/resource-requirements: bounds that the parallelism keeps are fulfilled.

    Raises:
        ConfigurationError: a vertex is missing or unknown, or a bound is malformed.
        NotAdaptiveError: the job would have to be rescaled.
    """
    vertices = {vertex["id"]: vertex for vertex in archive["vertices"]}
    for vertex_id in wanted:
        if vertex_id not in vertices:
            raise ConfigurationError(f"the job has no vertex {vertex_id}")
    for vertex_id, vertex in vertices.items():
        if vertex_id not in wanted:
            raise ConfigurationError(f"vertex {vertex_id} ({vertex['name']}) is missing: all have to be named")
        bounds = wanted[vertex_id]["parallelism"]
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


def _kept(archive: Archive) -> Mapping[str, Any]:
    """What a job in reactive mode says of its rescales; nothing of others."""
    found: Mapping[str, Any] = archive.get(REACTIVE, {}).get("rescales", {})
    return found


def rescales_overview(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/overview."""
    kept = _kept(archive)
    latest = {name: kept.get("latest", {}).get(name.upper()) for name in ("completed", "failed", "ignored")}
    return {
        "rescalesCounts": {**_COUNTS, **kept.get("counts", {})},
        "latest": {name: one and _rescale(archive, one) for name, one in latest.items()},
    }


def rescales_history(archive: Archive) -> list[dict[str, Any]]:
    """/jobs/:jobid/rescales/history: the newest first; one that is under way has no end."""
    return [_rescale(archive, one) for one in _kept(archive).get("history", ())]


def rescale_details(archive: Archive, query: Mapping[str, str]) -> dict[str, Any]:
    """/jobs/:jobid/rescales/details/:rescaleuuid: also what the JobMaster did meanwhile.

    Raises:
        UnknownRescaleError: there is none, or it is not kept any more.
    """
    wanted = query["rescale_id"]
    kept = _kept(archive)
    for one in (*kept.get("history", ()), *kept.get("latest", {}).values()):
        if one["id"] == wanted:
            return _rescale(archive, one, phases=True)
    why = "" if kept else ": only jobs in reactive mode (scheduler-mode) are rescaled"
    raise UnknownRescaleError(f"No rescale {wanted[:80]!r} of job {archive['jid']} is kept{why}.")


def _rescale(archive: Archive, one: Mapping[str, Any], phases: bool = False) -> dict[str, Any]:
    kept, limits = _kept(archive), archive[REACTIVE]["limits"]
    vertices: dict[str, Any] = {}
    slots: dict[str, Any] = {}
    for vertex in archive["vertices"]:
        id_, group = vertex["id"], vertex["slotSharingGroupId"]
        named = {"slotSharingGroupId": group, "slotSharingGroupName": group}
        before, after = one["before"].get(id_), one["after"].get(id_)
        vertices[id_] = {
            "jobVertexId": id_,
            "jobVertexName": vertex["name"],
            **named,
            "desiredParallelism": limits[id_],
            "sufficientParallelism": kept["least"][id_],
            "preRescaleParallelism": before,
            "postRescaleParallelism": after,
        }
        slot = slots.setdefault(
            group,
            {
                **named,
                "requestResourceProfile": {},
                "desiredSlots": kept["groups"][group],
                "minimalRequiredSlots": 1,
                "preRescaleSlots": None,
                "postRescaleSlots": None,
                "acquiredResourceProfile": {},
            },
        )
        for name, number in (("preRescaleSlots", before), ("postRescaleSlots", after)):
            if number is not None:
                slot[name] = max(slot[name] or 0, number)
    return {
        "rescaleUuid": one["id"],
        "resourceRequirementsUuid": archive["jid"],
        "rescaleAttemptId": one["attempt"],
        "vertices": vertices,
        "slots": slots,
        "schedulerStates": [_phase(*phase) for phase in one["phases"]] if phases else [],
        "startTimestampInMillis": one["start"],
        "endTimestampInMillis": one["end"],
        "terminalState": one["state"],
        "triggerCause": one["cause"],
        "terminatedReason": one["reason"],
    }


def _phase(state: str, entered: int, left: int | None, error: str | None) -> dict[str, Any]:
    return {
        "state": state,
        "enterTimestampInMillis": entered,
        "leaveTimestampInMillis": left,
        "durationInMillis": None if left is None else left - entered,
        "stringifiedException": error,
    }


def rescales_summary(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/summary: durations of those that are kept."""
    kept = _kept(archive)
    ended = [(one["state"], one["end"] - one["start"]) for one in kept.get("history", ()) if one["end"] is not None]
    durations = {
        "rescales": [took for _, took in ended],
        **{f"{name.lower()}Rescales": [took for state, took in ended if state == name] for name in _STATES},
    }
    return {
        "rescalesCounts": {**_COUNTS, **kept.get("counts", {})},
        **{f"{name}DurationStatsInMillis": summary(took) for name, took in durations.items()},
    }


def rescales_config(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/config: -1 = there is no such thing."""
    names = (
        "submissionResourceWaitTimeoutInMillis", "submissionResourceStabilizationTimeoutInMillis",
        "slotIdleTimeoutInMillis", "executingCooldownTimeoutInMillis", "executingResourceStabilizationTimeoutInMillis",
        "maximumDelayForTriggeringRescaleInMillis", "rescaleOnFailedCheckpointCount",
    )  # fmt: skip
    reactive = archive.get(REACTIVE)
    mode, config = (None, {}) if reactive is None else ("REACTIVE", reactive["config"])
    kept = _kept(archive).get("max", 0)
    return {"rescaleHistoryMax": kept, "schedulerExecutionMode": mode, **dict.fromkeys(names, _NONE), **config}
