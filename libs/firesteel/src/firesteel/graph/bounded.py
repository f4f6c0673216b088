"""Whether a job runs in batch mode, and what it may not have then. Pure."""

from __future__ import annotations

from typing import Final

from firesteel.graph.job_graph import JobGraph
from firesteel.graph.specs import OperatorKind

RUNTIME_MODE: Final = "execution.runtime-mode"
BATCH: Final = "BATCH"


def is_batch(graph: JobGraph) -> bool:
    """Whether the job's stages are Spark's. Clients say so in its settings; they have decided what AUTOMATIC is."""
    return graph.config.get(RUNTIME_MODE) == BATCH


def unbounded_source(graph: JobGraph) -> str | None:
    """Name of a source that does not end by itself."""
    return next((v.name for v in graph.vertices if v.source is not None and not v.source.bounded), None)


def missing_in_batch(graph: JobGraph) -> str | None:
    """What the job has that this version does not run in batch mode; None = nothing."""
    for vertex in graph.vertices:
        if vertex.enumerates is not None or (vertex.source is not None and vertex.source.coordinator is not None):
            return f"a source with an enumerator of its own ({vertex.name!r})"
        for operator in vertex.operators:
            if operator.kind == OperatorKind.SINK_STAGE.value:
                return f"a sink with stages or one committer for all its subtasks ({operator.name!r})"
    if graph.python_environment:
        return "a Python environment of its own (python.requirements, python.archives, python.executable)"
    return None
