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
_NONE: Final = -1


class NotAdaptiveError(FiresteelError):
    """Only Flink's adaptive scheduler can do that."""


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


def _counts(archive: Archive) -> dict[str, int]:
    """Of a job in reactive mode those that gave it more slots; what follows a failure is a restart."""
    reactive = archive.get(REACTIVE, {})
    return {name: reactive.get(name, none) for name, none in _COUNTS.items()}


def rescales_overview(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/overview; there is no history, so nothing is said about the latest ones."""
    return {"rescalesCounts": _counts(archive), "latest": {"completed": None, "failed": None, "ignored": None}}


def rescales_summary(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/summary."""
    names = ("rescales", "completedRescales", "ignoredRescales", "failedRescales")
    return {"rescalesCounts": _counts(archive), **{f"{name}DurationStatsInMillis": summary(()) for name in names}}


def rescales_config(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/config: -1 = there is no such thing."""
    names = (
        "submissionResourceWaitTimeoutInMillis", "submissionResourceStabilizationTimeoutInMillis",
        "slotIdleTimeoutInMillis", "executingCooldownTimeoutInMillis", "executingResourceStabilizationTimeoutInMillis",
        "maximumDelayForTriggeringRescaleInMillis", "rescaleOnFailedCheckpointCount",
    )  # fmt: skip
    reactive = archive.get(REACTIVE)
    mode, config = (None, {}) if reactive is None else ("REACTIVE", reactive["config"])
    return {"rescaleHistoryMax": 0, "schedulerExecutionMode": mode, **dict.fromkeys(names, _NONE), **config}
