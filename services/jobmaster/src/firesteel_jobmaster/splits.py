"""Hands out the splits of a job's sources: by built-in enumerators, or with those of users in tasks of their own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.checkpoint.metadata import EnumeratorState
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.core.errors import GraphError, ProgramError
from firesteel.functions.source import BuiltInEnumerator, Split
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_graph import JobGraph, JobVertex
from firesteel.protocol.messages import Splits
from firesteel.protocol.operator_events import Event
from firesteel_jobmaster.enumerator_link import EnumeratorLink
from firesteel_jobmaster.split_assignments import Assignments

EnumeratorFactory = Callable[[str, Mapping[str, Any]], BuiltInEnumerator]
_WHERE: Final = "The JobMaster looks for it on its own host, and TaskManagers read it on theirs."
_NOTHING: Final = Splits((), False)


@dataclass
class _Answers:
    """To the requests of a subtask.

    Attributes:
        number: of its last request.
        serial: of the last splits that were given.
        given: by number of the request; those that may be lost.
    """

    number: int = 0
    serial: int = 0
    given: dict[int, Splits] = field(default_factory=dict)

    def taken(self, serial: int) -> None:
        """All splits up to this serial have arrived."""
        self.given = {number: splits for number, splits in self.given.items() if splits.serial > serial}


@contextmanager
def _named(vertex: JobVertex) -> Iterator[None]:
    """Errors of its enumerator say whose it is, and where it looks."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"source {vertex.name!r}: {error}") from error
    except ProgramError as error:
        raise ProgramError(f"source {vertex.name!r}: {error}. {_WHERE}") from error
    except OSError as error:
        raise OSError(f"source {vertex.name!r}: {error}, on {socket.gethostname()}") from error


class SplitAssigner:
    """One enumerator, or a link to one, for each source vertex.

    Args:
        job_graph: of the job.
        create: makes an enumerator of a name and a configuration.

    Raises:
        GraphError: an enumerator is unknown, or its configuration is wrong.
    """

    def __init__(self, job_graph: JobGraph, create: EnumeratorFactory) -> None:
        self._create = create
        sources = [v for v in job_graph.vertices if v.source is not None]
        self._links = {v.id: EnumeratorLink(v) for v in sources if v.source and v.source.coordinator is not None}
        self._vertices = {v.id: v for v in sources if v.id not in self._links}
        self._names = {v.id: v.source.enumerator for v in sources if v.source}
        self._sources = {v.id: v for v in sources}
        self._enumerators = {id_: self._make(vertex) for id_, vertex in self._vertices.items()}
        self._given = {vertex_id: Assignments() for vertex_id in self._enumerators}
        self._waiting: dict[str, Execution] = {}
        self._answers: dict[str, _Answers] = {}

    def _make(self, vertex: JobVertex) -> BuiltInEnumerator:
        assert vertex.source is not None
        with _named(vertex):
            return self._create(vertex.source.enumerator, vertex.source.config)

    def snapshot(self, vertex_id: str, serials: Mapping[int, int], number: int = 0) -> EnumeratorState:
        """State of a source for a checkpoint; to be taken when all its readers have written theirs.

        Args:
            vertex_id: of the source.
            serials: of each subtask: of the last splits that its reader had got at the barrier.
            number: of what a user's enumerator had said last before its own snapshot.

        Raises:
            Exception: the enumerator gives none.
        """
        link = self._links.get(vertex_id)
        if link is not None:
            return link.snapshot(serials, number)
        returned = tuple(split.to_plain() for _, split in self._given[vertex_id].not_in_state(serials))
        return EnumeratorState(self._names[vertex_id], self._enumerators[vertex_id].snapshot(), returned)

    def completed(self, vertex_id: str, serials: Mapping[int, int]) -> None:
        """The checkpoint with these serials is complete."""
        link = self._links.get(vertex_id)
        if link is not None:
            link.completed(serials)
        else:
            self._given[vertex_id].completed(serials)

    def begin(self, point: RestorePoint | None) -> None:
        """The job begins, perhaps with a checkpoint.

        Raises:
            ProgramError: there is nothing where a source looks, or the checkpoint does not fit it.
            OSError: it can't look.
        """
        if point is not None:
            for vertex in self._sources.values():
                self._reset(vertex, point)
            return
        for vertex_id, enumerator in self._enumerators.items():
            with _named(self._vertices[vertex_id]):
                enumerator.start()

    def _reset(self, vertex: JobVertex, point: RestorePoint | None) -> None:
        state = point.enumerator(vertex) if point is not None else None
        link = self._links.get(vertex.id)
        if link is not None:
            link.restart(() if state is None else state.returned)
            return
        enumerator = self._make(vertex)
        if state is None:
            with _named(vertex):
                enumerator.start()
        else:
            enumerator.restore(state.state)
            enumerator.add_splits_back([Split.from_plain(split) for split in state.returned])
        self._enumerators[vertex.id] = enumerator
        self._given[vertex.id].clear()

    def restart(self, executions: Collection[Execution], point: RestorePoint | None = None) -> None:
        """These attempts are new: what the ones before them were given since the checkpoint is handed out again.

        A source that is started again as a whole goes on from the enumerator's state in the checkpoint. If only some of
        its subtasks are, the enumerator goes on, and gets back what they were given.

        Args:
            executions: the new attempts.
            point: that they go on from; None = from their beginning.

        Raises:
            ProgramError, GraphError, OSError: as at the beginning.
        """
        new: dict[str, list[Execution]] = {}
        for execution in executions:
            if execution.vertex.id in self._sources:
                new.setdefault(execution.vertex.id, []).append(execution)
        again = {_subtask_of(execution.id) for execution in executions}
        self._waiting = {id_: e for id_, e in self._waiting.items() if _subtask_of(id_) not in again}
        self._answers = {id_: a for id_, a in self._answers.items() if _subtask_of(id_) not in again}
        for vertex_id, attempts in new.items():
            if len(attempts) == attempts[0].vertex.parallelism:
                self._reset(attempts[0].vertex, point)
            else:
                for execution in attempts:
                    self._enumerators[vertex_id].reader_reset(execution.subtask)
                back = self._given[vertex_id].take_back(e.subtask for e in attempts)
                if back:
                    self._enumerators[vertex_id].add_splits_back(back)

    @property
    def someone_waits(self) -> bool:
        """Whether a subtask found no split but may later."""
        return bool(self._waiting)

    def has(self, vertex_id: str) -> bool:
        """Whether the vertex is a source."""
        return vertex_id in self._sources

    # -- enumerators in tasks of their own

    def link(self, vertex: JobVertex) -> EnumeratorLink | None:
        """That of a source or of the vertex that runs its enumerator; None = it has none."""
        return self._links.get(vertex.enumerates or vertex.id)

    def take_events(self) -> list[tuple[Execution, int, tuple[Event, ...]]]:
        """What is to be said to such tasks now: the task, a number, events."""
        return [taken for link in self._links.values() if (taken := link.take()) is not None]

    # -- requests

    def answer(self, execution: Execution, number: int, taken: int = 0) -> Splits:
        """What a subtask gets for a request; it is remembered if it has to wait.

        Splits are taken from the enumerator once for each number: a repeat gets the same ones, also behind later
        requests: a reader that was sent other splits meanwhile has asked again.

        Args:
            execution: who asks.
            number: of its request.
            taken: all splits up to this serial have arrived.
        """
        link = self._links.get(execution.vertex.id)
        if link is not None:
            link.reader_asks(execution, number)
            return _NOTHING
        answers = self._answers.setdefault(execution.id, _Answers())
        answers.taken(taken)
        if number > answers.number:
            answers.number = number
            self._look(execution)
        return answers.given.get(number, _NOTHING)

    def _look(self, execution: Execution) -> bool:
        """Ask the enumerator; whether it had something."""
        enumerator = self._enumerators[execution.vertex.id]
        self._waiting[execution.id] = execution
        with _named(execution.vertex):
            splits = enumerator.next_splits(execution.subtask, execution.vertex.parallelism)
        no_more = enumerator.exhausted  # said along with the last split: saves a round
        if not splits and not no_more:
            return False
        del self._waiting[execution.id]
        answers = self._answers[execution.id]
        answers.serial += 1
        self._given[execution.vertex.id].given(execution.subtask, answers.serial, splits)
        answers.given[answers.number] = Splits(tuple(s.to_plain() for s in splits), no_more, answers.serial)
        return True

    def retry(self) -> list[tuple[Execution, Splits]]:
        """Ask again for those that wait and still run; the ones for whom there is something now."""
        found = []
        for execution in list(self._waiting.values()):
            if execution.state.is_terminal:
                del self._waiting[execution.id]
                continue
            if self._look(execution):
                answers = self._answers[execution.id]
                found.append((execution, answers.given[answers.number]))
        return found


def _subtask_of(execution_id: str) -> str:
    """The part of the id that all attempts of a subtask share."""
    return execution_id.rpartition("_")[0]
