"""Spans of a TaskManager's part in the start of tasks, below those of the JobMaster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span, Value

__all__ = ["deployed"]


def deployed(deployment: Mapping[str, Any], taskmanager_id: str, received_ms: int, sent_ms: int) -> list[Span]:
    """Spans of tasks whose code was fetched and whose slot was told to run them; none if the job is not traced.

    Args:
        deployment: as the JobMaster has sent it.
        taskmanager_id: of this TaskManager.
        received_ms, sent_ms: epoch.
    """
    above = TraceContext.parse((deployment.get("trace") or {}).get("traceparent"))
    if above is None:
        return []
    spans = []
    for task in deployment["tasks"]:
        deploy = above.below(str(task["execution_id"])).below("Deploy")
        about: dict[str, Value] = {
            "job.id": str(deployment.get("job_id", "")),
            "job.name": str(deployment.get("job_name", "")),
            "vertex.id": str(task.get("vertex_id", "")),
            "vertex.name": str(task.get("vertex_name", "")),
            "subtask": int(task.get("subtask", 0)),
            "attempt": int(task.get("attempt", 0)),
            "taskmanager.id": taskmanager_id,
        }
        spans.append(Span(deploy.below("Hand over"), "Hand over", received_ms, sent_ms, deploy, about))
    return spans
