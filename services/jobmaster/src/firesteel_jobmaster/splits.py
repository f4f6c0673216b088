"""Hands out the splits of a job's sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from firesteel.core.errors import GraphError, ProgramError
from firesteel.functions.source import Split, SplitEnumerator
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_graph import JobGraph

EnumeratorFactory = Callable[[str, Mapping[str, Any]], SplitEnumerator]


class SplitAssigner:
    """One enumerator for each source vertex.

    Args:
        job_graph: of the job.
        create: makes an enumerator of a name and a configuration.

    Raises:
        GraphError: an enumerator is unknown, its configuration is wrong, or there is nothing where it looks.
    """

    def __init__(self, job_graph: JobGraph, create: EnumeratorFactory) -> None:
        self._enumerators: dict[str, SplitEnumerator] = {}
        for vertex in job_graph.vertices:
            if vertex.source is None:
                continue
            try:
                self._enumerators[vertex.id] = create(vertex.source.enumerator, vertex.source.config)
            except (ProgramError, OSError) as error:
                raise GraphError(f"source {vertex.name!r}: {error}") from error
        self._waiting: dict[str, Execution] = {}

    @property
    def someone_waits(self) -> bool:
        """Whether a subtask found no split but may later."""
        return bool(self._waiting)

    def has(self, vertex_id: str) -> bool:
        """Whether the vertex is a source."""
        return vertex_id in self._enumerators

    def next(self, execution: Execution) -> tuple[list[Split], bool]:
        """Splits for a subtask, and whether none will come after them; it is remembered if it has to wait."""
        enumerator = self._enumerators[execution.vertex.id]
        splits = enumerator.next_splits(execution.subtask, execution.vertex.parallelism)
        no_more = enumerator.exhausted  # said along with the last split: saves a round
        if splits or no_more:
            self._waiting.pop(execution.id, None)
        else:
            self._waiting[execution.id] = execution
        return splits, no_more

    def retry(self) -> list[tuple[Execution, list[Split], bool]]:
        """Ask again for those that wait and still run; the ones for whom there is something now."""
        found = []
        for execution in list(self._waiting.values()):
            if execution.state.is_terminal:
                del self._waiting[execution.id]
                continue
            splits, no_more = self.next(execution)
            if splits or no_more:
                found.append((execution, splits, no_more))
        return found
