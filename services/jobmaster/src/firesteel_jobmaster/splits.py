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
    """Answers to the requests of a subtask.

    Attributes:
        number: of the subtask's last request.
        serial: of the last splits that the subtask was given.
        given: request -> splits that were given for it, as long as they may be lost.
    """

    number: int = 0
    serial: int = 0
    given: dict[int, Splits] = field(default_factory=dict)

    def taken(self, serial: int) -> None:
        """All splits up to this serial have arrived."""
        self.given = {number: splits for number, splits in self.given.items() if splits.serial > serial}


@contextmanager
def _named(vertex: JobVertex) -> Iterator[None]:
    """Have errors of a source's enumerator name the source, and where it looks."""
    try:
        yield
    except GraphError as error:
        raise GraphError(f"source {vertex.name!r}: {error}") from error
    except ProgramError as error:
        raise ProgramError(f"source {vertex.name!r}: {error}. {_WHERE}") from error
    except OSError as error:
        raise OSError(f"source {vertex.name!r}: {error}, on {socket.gethostname()}") from error


class SplitAssigner:
    """Hands out splits: has an enumerator, or a link to one, for each source vertex.

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
            serials: subtask -> serial of the last splits that its reader had got at the barrier.
            number: of the last message of a user's enumerator before its own snapshot.

        Raises:
            Exception: the enumerator gives no snapshot.
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
        """Hand out again the splits that former attempts of these tasks were given since the checkpoint.

        A source that is started again as a whole goes on from the enumerator's state in the checkpoint. If only some of
        its subtasks are started again, the enumerator goes on, and gets back the splits that these were given.

        Args:
            executions: the new attempts.
            point: checkpoint that they go on from; None = they begin anew.

        Raises:
            ProgramError, GraphError, OSError: as at the beginning.
        """
        new_attempts: dict[str, list[Execution]] = {}
        for execution in executions:
            if execution.vertex.id in self._sources:
                new_attempts.setdefault(execution.vertex.id, []).append(execution)
        restarted = {_subtask_of(execution.id) for execution in executions}
        self._waiting = {id_: e for id_, e in self._waiting.items() if _subtask_of(id_) not in restarted}
        self._answers = {id_: a for id_, a in self._answers.items() if _subtask_of(id_) not in restarted}
        for vertex_id, attempts in new_attempts.items():
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
        """Whether a subtask has asked for splits, and may get some later."""
        return bool(self._waiting)

    def has(self, vertex_id: str) -> bool:
        """Whether the vertex is a source."""
        return vertex_id in self._sources

    # -- enumerators in tasks of their own

    def link(self, vertex: JobVertex) -> EnumeratorLink | None:
        """The link of a source, or of the vertex that runs its enumerator; None = there is none."""
        return self._links.get(vertex.enumerates or vertex.id)

    def take_events(self) -> list[tuple[Execution, int, tuple[Event, ...]]]:
        """Messages to enumerators that are due now: the task, the message's number, events."""
        return [message for link in self._links.values() if (message := link.take()) is not None]

    # -- requests

    def answer(self, execution: Execution, number: int, taken: int = 0) -> Splits:
        """The splits that a subtask gets for a request; a subtask that gets none is remembered.

        Splits are taken from the enumerator once for each number: a repeated request gets the same ones, also after
        later requests, as a reader that was sent other splits meanwhile has asked again.

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
        """Ask the enumerator for splits of a subtask; returns whether it had some."""
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
        """Ask the enumerators again for subtasks that wait and still run; returns those that get splits now."""
        answered = []
        for execution in list(self._waiting.values()):
            if execution.state.is_terminal:
                del self._waiting[execution.id]
                continue
            if self._look(execution):
                answers = self._answers[execution.id]
                answered.append((execution, answers.given[answers.number]))
        return answered


def _subtask_of(execution_id: str) -> str:
    """The part of the id that all attempts of a subtask share."""
    return execution_id.rpartition("_")[0]
