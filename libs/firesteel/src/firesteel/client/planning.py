"""The plan of a program, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.graph.bounded import is_batch, sizing_of
from firesteel.graph.job_graph import JobGraph, JobVertex


class PlanOnly(BaseException):
    """Raised at a program's first job to end the program, where only the plan is needed.

    Attributes:
        stream_graph: as the program built it.
        job_graph: as it would be submitted.
    """

    def __init__(self, stream_graph: Any, job_graph: JobGraph) -> None:
        super().__init__("the plan is made")
        self.stream_graph, self.job_graph = stream_graph, job_graph


def plan_table(graph: JobGraph) -> str:
    """The tasks of a job, one line for each, with what flows between them."""
    numbers = {vertex.id: number for number, vertex in enumerate(graph.vertices, start=1)}
    rows = [
        (
            str(numbers[vertex.id]),
            vertex.name,
            _parallelism(graph, vertex),
            str(vertex.max_parallelism),
            vertex.slot_sharing_group,
            _inputs(graph, vertex, numbers),
        )
        for vertex in graph.vertices
    ]
    lines = [f"Job {graph.name!r}: {_count(len(graph.vertices), 'task')}, {_count(graph.slots_needed(), 'slot')}", ""]
    return "\n".join([*lines, *_table(("#", "task", "parallelism", "max", "slot group", "inputs"), rows)])


def _parallelism(graph: JobGraph, vertex: JobVertex) -> str:
    """The parallelism as text; a range in batch mode, where it may depend on the amount of input."""
    sizing = sizing_of(graph, vertex) if is_batch(graph) else None
    if sizing is None or sizing.least == sizing.most:
        return str(vertex.parallelism if sizing is None else sizing.most)
    return f"{sizing.least}-{sizing.most}"


def _inputs(graph: JobGraph, vertex: JobVertex, numbers: dict[str, int]) -> str:
    return ", ".join(f"{numbers[edge.source]} {edge.partitioner}" for edge in graph.edges if edge.target == vertex.id)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = (head, *rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
