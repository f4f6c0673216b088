"""REST answers about rescaling: the parallelism of a job that runs is fixed, and they say so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.rest.checkpoint_views import summary
from firesteel.rest.views import Archive

_COUNTS: Final = {"ignored": 0, "inProgress": 0, "completed": 0, "failed": 0}
_NONE: Final = -1


class NotAdaptiveError(FiresteelError):
    """Only Flink's adaptive scheduler can do that."""


def requirements(archive: Archive) -> dict[str, Any]:
    """/jobs/:jobid/resource-requirements: both bounds are the parallelism."""
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
        if not least <= vertex["parallelism"] <= most:
            raise NotAdaptiveError(
                f"Vertex {vertex_id} has the parallelism {vertex['parallelism']}, and this scheduler can't rescale a "
                f"job that runs: stop it with a savepoint, and start it from that with another parallelism."
            )
    return {}


def rescales_overview(_: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/overview."""
    return {"rescalesCounts": dict(_COUNTS), "latest": {"completed": None, "failed": None, "ignored": None}}


def rescales_summary(_: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/summary."""
    names = ("rescales", "completedRescales", "ignoredRescales", "failedRescales")
    return {"rescalesCounts": dict(_COUNTS), **{f"{name}DurationStatsInMillis": summary(()) for name in names}}


def rescales_config(_: Archive) -> dict[str, Any]:
    """/jobs/:jobid/rescales/config: -1 = there is no such thing."""
    names = (
        "submissionResourceWaitTimeoutInMillis", "submissionResourceStabilizationTimeoutInMillis",
        "slotIdleTimeoutInMillis", "executingCooldownTimeoutInMillis", "executingResourceStabilizationTimeoutInMillis",
        "maximumDelayForTriggeringRescaleInMillis", "rescaleOnFailedCheckpointCount",
    )  # fmt: skip
    return {"rescaleHistoryMax": 0, "schedulerExecutionMode": None, **dict.fromkeys(names, _NONE)}
