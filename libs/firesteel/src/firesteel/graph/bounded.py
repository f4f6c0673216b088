"""Batch mode: whether a job runs in it, what it can't run, and how many subtasks a vertex may have. Pure."""

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
    """Bounds for the number of tasks of a stage, which is chosen once the size of its input is known.

    Attributes:
        least, most: bounds, both included.
        volume: bytes of the shuffle that a task is meant to read.
    """

    least: int
    most: int
    volume: int


def is_batch(graph: JobGraph) -> bool:
    """Whether the job runs as stages of Spark. The client has already replaced AUTOMATIC in the job's settings."""
    return graph.config.get(RUNTIME_MODE) == BATCH


def unbounded_source(graph: JobGraph) -> str | None:
    """Return the name of a source that does not end by itself; None = all do."""
    return next((v.name for v in graph.vertices if v.source is not None and not v.source.bounded), None)


def missing_in_batch(graph: JobGraph) -> str | None:
    """Return the feature of the job that batch mode does not support, for a message; None = there is none."""
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
    """Return how many tasks a vertex may have; None = as many as its parallelism, or as have splits to read.

    It is None where the program has set the parallelism of an operator, and where the inputs are not partitioned
    alike, so that their partitions can't be merged.
    """
    if vertex.source is not None or not adapts(graph, vertex) or partitions_read(graph, vertex) < 2:
        return None
    settings = Settings(dict(graph.config), "job")
    most = min(vertex.parallelism, settings.get(BATCH_MAX_PARALLELISM) or vertex.parallelism)
    return Sizing(min(settings.get(BATCH_MIN_PARALLELISM), most), most, settings.get(BATCH_TASK_VOLUME))


def adapts(graph: JobGraph, vertex: JobVertex) -> bool:
    """Whether a vertex may have fewer subtasks than its parallelism if there is little to read.

    That is also allowed over a FORWARD edge: the records of one producing subtask stay together and in order.
    """
    return vertex.adapts and vertex.parallelism > 1 and Settings(dict(graph.config), "job").get(BATCH_AUTO_PARALLELISM)


def partitions_read(graph: JobGraph, vertex: JobVertex) -> int:
    """Return how many partitions each input of a vertex has; 0 = the inputs differ, or one is GLOBAL.

    Broadcast inputs do not count.
    """
    edges = [e for e in graph.edges if e.target == vertex.id and e.partitioner != PartitionerKind.BROADCAST.value]
    counts = {0 if e.partitioner == PartitionerKind.GLOBAL.value else partitions_of(e, vertex) for e in edges}
    return counts.pop() if len(counts) == 1 else 0


def partitions_of(edge: JobEdge, target: JobVertex) -> int:
    """Return how many partitions the records of an edge have; with keys, one for each key group."""
    kind = PartitionerKind(edge.partitioner)
    if kind is PartitionerKind.HASH:
        return target.max_parallelism
    return 1 if kind in (PartitionerKind.BROADCAST, PartitionerKind.GLOBAL) else target.parallelism
