"""Hands out the splits of a job's sources."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.core.errors import GraphError, ProgramError
from firesteel.functions.source import SplitEnumerator
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol.messages import Splits

EnumeratorFactory = Callable[[str, Mapping[str, Any]], SplitEnumerator]
_WHERE: Final = "The JobMaster looks for it on its own host, and TaskManagers read it on theirs."
_NOTHING: Final = Splits((), False)


@dataclass(frozen=True)
class _Answer:
    """The last one that a subtask got.

    Attributes:
        number: of its request.
        serial: of the last splits that it got, by this answer or before.
        given: the answer.
    """

    number: int
    serial: int
    given: Splits


_NONE: Final = _Answer(0, 0, _NOTHING)


class SplitAssigner:
    """One enumerator for each source vertex.

    Args:
        job_graph: of the job.
        create: makes an enumerator of a name and a configuration.

    Raises:
        GraphError: an enumerator is unknown, or its configuration is wrong.
        ProgramError: there is nothing where it looks.
        OSError: it can't look.
    """

    def __init__(self, job_graph: JobGraph, create: EnumeratorFactory) -> None:
        self._enumerators: dict[str, SplitEnumerator] = {}
        for vertex in job_graph.vertices:
            if vertex.source is None:
                continue
            try:
                self._enumerators[vertex.id] = create(vertex.source.enumerator, vertex.source.config)
            except GraphError as error:
                raise GraphError(f"source {vertex.name!r}: {error}") from error
            except ProgramError as error:
                raise ProgramError(f"source {vertex.name!r}: {error}. {_WHERE}") from error
            except OSError as error:
                raise OSError(f"source {vertex.name!r}: {error}, on {socket.gethostname()}") from error
        self._waiting: dict[str, Execution] = {}
        self._answers: dict[str, _Answer] = {}

    @property
    def someone_waits(self) -> bool:
        """Whether a subtask found no split but may later."""
        return bool(self._waiting)

    def has(self, vertex_id: str) -> bool:
        """Whether the vertex is a source."""
        return vertex_id in self._enumerators

    def answer(self, execution: Execution, number: int) -> Splits:
        """What a subtask gets for a request; it is remembered if it has to wait.

        Splits are taken from the enumerator once for each number: a repeat gets the same ones, and a request that is
        older than one that was answered gets nothing.

        Args:
            execution: who asks.
            number: of its request.
        """
        last = self._answers.get(execution.id, _NONE)
        if number < last.number:
            return _NOTHING
        if number > last.number:
            last = self._answers[execution.id] = _Answer(number, last.serial, _NOTHING)
            self._look(execution)
        return self._answers[execution.id].given

    def _look(self, execution: Execution) -> bool:
        """Ask the enumerator; whether it had something."""
        enumerator = self._enumerators[execution.vertex.id]
        self._waiting[execution.id] = execution
        splits = enumerator.next_splits(execution.subtask, execution.vertex.parallelism)
        no_more = enumerator.exhausted  # said along with the last split: saves a round
        if not splits and not no_more:
            return False
        del self._waiting[execution.id]
        last = self._answers[execution.id]
        given = Splits(tuple(s.to_plain() for s in splits), no_more, last.serial + 1)
        self._answers[execution.id] = _Answer(last.number, given.serial, given)
        return True

    def retry(self) -> list[tuple[Execution, Splits]]:
        """Ask again for those that wait and still run; the ones for whom there is something now."""
        found = []
        for execution in list(self._waiting.values()):
            if execution.state.is_terminal:
                del self._waiting[execution.id]
                continue
            if self._look(execution):
                found.append((execution, self._answers[execution.id].given))
        return found
