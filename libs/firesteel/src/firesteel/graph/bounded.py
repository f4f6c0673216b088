"""Whether a job runs in batch mode, what it may not have then, and how many subtasks it has. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from firesteel.config import Settings
from firesteel.config.options import (
    BATCH_AUTO_PARALLELISM,
    BATCH_MAX_PARALLELISM,
    BATCH_MIN_PARALLELISM,
    BATCH_TASK_VOLUME,
)
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex
from firesteel.graph.specs import OperatorKind, PartitionerKind

RUNTIME_MODE: Final = "execution.runtime-mode"
BATCH: Final = "BATCH"


class Sizing(NamedTuple):
    """How many tasks a stage gets when it is known what there is to read."""

    least: int
    most: int
    volume: int
    """Bytes that a task is meant to read, as they are in the shuffle."""


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


def sizing_of(graph: JobGraph, vertex: JobVertex) -> Sizing | None:
    """How many tasks a vertex may have; None: as many as its parallelism, or as have splits to read.

    It has that many where the program says so for an operator, and where its inputs are not partitioned alike, so that
    there is nothing that could be put together.
    """
    if vertex.source is not None or not adapts(graph, vertex) or partitions_read(graph, vertex) < 2:
        return None
    settings = Settings(dict(graph.config), "job")
    most = min(vertex.parallelism, settings.get(BATCH_MAX_PARALLELISM) or vertex.parallelism)
    return Sizing(min(settings.get(BATCH_MIN_PARALLELISM), most), most, settings.get(BATCH_TASK_VOLUME))


def adapts(graph: JobGraph, vertex: JobVertex) -> bool:
    """Whether it may have fewer subtasks than its parallelism, if it is not needed for what there is to read.

    Over a FORWARD edge, too: what one subtask sends stays together and in order.
    """
    return vertex.adapts and vertex.parallelism > 1 and Settings(dict(graph.config), "job").get(BATCH_AUTO_PARALLELISM)


def partitions_read(graph: JobGraph, vertex: JobVertex) -> int:
    """How many partitions the inputs of a vertex have, each of them as many; 0: they differ, or are for all or one."""
    edges = [e for e in graph.edges if e.target == vertex.id and e.partitioner != PartitionerKind.BROADCAST.value]
    counts = {0 if e.partitioner == PartitionerKind.GLOBAL.value else partitions_of(e, vertex) for e in edges}
    return counts.pop() if len(counts) == 1 else 0


def partitions_of(edge: JobEdge, target: JobVertex) -> int:
    """How many partitions what goes over an edge has: of keys one for each key group."""
    kind = PartitionerKind(edge.partitioner)
    if kind is PartitionerKind.HASH:
        return target.max_parallelism
    return 1 if kind in (PartitionerKind.BROADCAST, PartitionerKind.GLOBAL) else target.parallelism
