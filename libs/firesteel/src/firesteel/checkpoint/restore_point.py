"""Decides what each task gets back when a job goes on from a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from firesteel.checkpoint.assign import RESULTS, LazySequence, OperatorRestore, TaskRestore, assign
from firesteel.checkpoint.metadata import CheckpointMetadata, EnumeratorState, OperatorState
from firesteel.checkpoint.savepoints import info_of
from firesteel.core.errors import StateRestoreError
from firesteel.graph.execution_graph import Execution
from firesteel.graph.job_graph import JobGraph, JobVertex

_IGNORE = "execution.state-recovery.ignore-unclaimed-state"


class RestorePoint:
    """A checkpoint together with the job that goes on from it.

    Args:
        metadata: metadata of the checkpoint.
        location: location of the metadata, for errors.
        job: the job that goes on.
        ignore_unclaimed: whether to leave out state of operators that the job does not have.
        same_program: whether the checkpoint is the job's own, so that its key selectors are the same.
        stopped: whether it is the savepoint with which this job was stopped, so that tasks only commit, and end.

    Raises:
        StateRestoreError: the job does not fit to the checkpoint; the message names the operator.
    """

    def __init__(
        self,
        metadata: CheckpointMetadata,
        location: str,
        job: JobGraph,
        ignore_unclaimed: bool,
        *,
        same_program: bool = True,
        stopped: bool = False,
    ) -> None:
        self.metadata, self.location = metadata, location
        self._stopped = stopped
        info = info_of(metadata)
        self._was_stopped = info is not None and bool(info.stop) and not stopped
        self._operators = {operator.operator_id: operator for operator in metadata.operators}
        self._trusts_keys = same_program or ignore_unclaimed
        self._check_claims(job, ignore_unclaimed)
        self._finished: dict[str, bool] = {}
        self._tasks: dict[str, Sequence[TaskRestore]] = {vertex.id: self._vertex(vertex) for vertex in job.vertices}

    @property
    def checkpoint_id(self) -> int:
        return self.metadata.checkpoint_id

    def task(self, execution: Execution) -> TaskRestore:
        """The state that a task gets."""
        return self.subtask(execution.vertex.id, execution.subtask)

    def subtask(self, vertex_id: str, subtask: int) -> TaskRestore:
        """The state that a subtask of a vertex gets."""
        return self._tasks[vertex_id][subtask]

    def has_finished(self, vertex_id: str) -> bool:
        """Whether all tasks of a vertex had finished in the checkpoint."""
        return self._finished[vertex_id]

    def enumerator(self, vertex: JobVertex) -> EnumeratorState | None:
        """The state from which the enumerator of a source goes on; None if the source is new.

        Raises:
            StateRestoreError: the source has another enumerator now.
        """
        if vertex.source is None:
            return None
        operator = self._operators.get(vertex.source.operator_id)
        if operator is None or operator.enumerator is None:
            return None
        if operator.enumerator.name != vertex.source.enumerator:
            raise StateRestoreError(
                f"source {vertex.name!r}: the checkpoint was taken with the enumerator {operator.enumerator.name!r}, "
                f"and it has {vertex.source.enumerator!r} now: give the source another uid to begin anew"
            )
        return operator.enumerator

    def _check_claims(self, job: JobGraph, ignore_unclaimed: bool) -> None:
        unclaimed_operators = unclaimed(self.metadata, job)
        if unclaimed_operators and not ignore_unclaimed:
            names = ", ".join(
                f"{o.name!r} ({f'uid {o.uid!r}' if o.uid else o.operator_id})" for o in unclaimed_operators[:5]
            )
            more = f" and {len(unclaimed_operators) - 5} more" if len(unclaimed_operators) > 5 else ""
            raise StateRestoreError(
                f"checkpoint {self.checkpoint_id} at {self.location} has state of operators that the job does not "
                f"have: {names}{more}. Give the job's operators the same uids as before, or drop that state with "
                f"{_IGNORE} = true (-n on the command line)."
            )

    def _vertex(self, vertex: JobVertex) -> Sequence[TaskRestore]:
        written = [self._operators[o.id] for o in vertex.operators if o.id in self._operators]
        if self._stopped:
            return self._ends(vertex, written)
        finished = [operator for operator in written if operator.finished]
        if finished and len(finished) < len(vertex.operators):
            other = next(o.name for o in vertex.operators if o.id not in {f.operator_id for f in finished})
            raise StateRestoreError(
                f"checkpoint {self.checkpoint_id}: operator {finished[0].name!r} had finished and {other!r} had not, "
                f"and they are one task ({vertex.name!r}) now: keep the job's chains as they were"
            )
        self._check_in_flight(vertex, written)
        by_operator = {
            o.operator_id: assign(o, vertex.parallelism, vertex.max_parallelism, same_program=self._trusts_keys)
            for o in written
        }
        # The job that was stopped with this savepoint has given its results to its own client.
        change = _without_results if self._was_stopped else _as_it_is
        return self._each(vertex, bool(finished), by_operator, change)

    def _check_in_flight(self, vertex: JobVertex, written: list[OperatorState]) -> None:
        """Check that records in flight can be replayed: they enter a task at its first operator, and nowhere else."""
        for operator in written:
            if operator.operator_id != vertex.operators[0].id and any(s.in_flight for s in operator.subtasks.values()):
                raise StateRestoreError(
                    f"checkpoint {self.checkpoint_id} at {self.location} is unaligned and holds records in flight to "
                    f"operator {operator.name!r}, which is chained behind {vertex.operators[0].name!r} now, so that "
                    "they would be lost: keep the job's chains as they were (start_new_chain() on that operator), or "
                    "go on from an aligned checkpoint or a savepoint"
                )

    def _ends(self, vertex: JobVertex, written: list[OperatorState]) -> Sequence[TaskRestore]:
        """The state of tasks of a job that was stopped: only what has to be committed, and results to be fetched."""
        by_operator = {o.operator_id: assign(o, vertex.parallelism, vertex.max_parallelism) for o in written}
        return self._each(vertex, True, by_operator, _left_at_the_end)

    def _each(
        self,
        vertex: JobVertex,
        finished: bool,
        by_operator: Mapping[str, Sequence[OperatorRestore]],
        change: Callable[[OperatorRestore], OperatorRestore],
    ) -> Sequence[TaskRestore]:
        """The state of each subtask, put together when it is accessed, because a large job has many."""

        self._finished[vertex.id] = finished

        def restore_of(subtask: int) -> TaskRestore:
            operators = {id_: change(parts[subtask]) for id_, parts in by_operator.items()}
            return TaskRestore(
                self.checkpoint_id, finished, {id_: part for id_, part in operators.items() if not part.is_empty}
            )

        return LazySequence(restore_of, vertex.parallelism)


def unclaimed(metadata: CheckpointMetadata, job: JobGraph) -> list[OperatorState]:
    """The operators with state in a checkpoint that the job does not have."""
    operator_ids = {operator.id for vertex in job.vertices for operator in vertex.operators}
    return [o for o in metadata.operators if o.operator_id not in operator_ids and o.has_state]


def _without_results(part: OperatorRestore) -> OperatorRestore:
    return replace(part, keyed={name: parts for name, parts in part.keyed.items() if name != RESULTS})


def _left_at_the_end(part: OperatorRestore) -> OperatorRestore:
    results = {RESULTS: part.keyed[RESULTS]} if RESULTS in part.keyed else {}
    return OperatorRestore(keyed=results, committables=part.committables)


def _as_it_is(part: OperatorRestore) -> OperatorRestore:
    return part
