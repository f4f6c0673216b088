"""What a TaskManager traces of a deployment."""

from __future__ import annotations

from firesteel.traces.context import TraceContext
from firesteel_taskmanager.traces import deployed

TASK = {"execution_id": "v_1_2", "vertex_id": "v", "vertex_name": "Map", "subtask": 1, "attempt": 2}


def test_its_part_is_below_what_the_jobmaster_calls_the_deployment() -> None:
    root = TraceContext.new()
    trace = {"traceparent": root.header, "reporters": [{}]}
    (span,) = deployed({"job_id": "j", "job_name": "orders", "tasks": [TASK], "trace": trace}, "tm", 5, 8)
    assert span.parent == root.below("v_1_2").below("Deploy")
    assert (span.name, span.begin_ms, span.end_ms) == ("Hand over", 5, 8)
    assert span.attributes == {
        "job.id": "j", "job.name": "orders", "vertex.id": "v", "vertex.name": "Map", "subtask": 1, "attempt": 2,
        "taskmanager.id": "tm",
    }  # fmt: skip


def test_what_is_not_traced_has_none() -> None:
    assert deployed({"tasks": [TASK]}, "tm", 5, 8) == []
    assert deployed({"tasks": [TASK], "trace": {"metrics": [{}]}}, "tm", 5, 8) == []
