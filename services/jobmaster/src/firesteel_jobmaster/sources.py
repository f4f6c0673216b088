"""Splits for the job's sources, the alignment of their watermarks, and events between enumerators and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.core.errors import GraphError, ProgramError, ProtocolError, RpcError
from firesteel.core.ids import VertexId
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import GroupWatermark, ReportWatermark
from firesteel.protocol.split_messages import OperatorEvents
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.job_state import SPLITS_TIMER, JobState
from firesteel_jobmaster.splits import EnumeratorFactory, SplitAssigner

MAX_WATERMARK = 2**63 - 1


class AlignmentGroups:
    """Watermarks of the source subtasks of a job, by group.

    Args:
        is_live: whether an execution still runs; one that has ended holds its group back no more.
    """

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        self._is_live = is_live
        self._groups: dict[str, dict[str, int]] = {}

    def report(self, group: str, execution_id: str, watermark: int) -> int:
        """Take the watermark of a subtask (``MAX_WATERMARK``: it is idle); returns the smallest one of its group."""
        members = self._groups.setdefault(group, {})
        members[execution_id] = watermark
        for member in [member for member in members if not self._is_live(member)]:
            del members[member]
        return min(members.values(), default=MAX_WATERMARK)


class JobSources:
    """Brings events to the job's enumerators. What these raise fails the job: they are plug-ins, and look outside.

    Args:
        state: of the job.
        create: makes the enumerators of sources.
    """

    def __init__(self, state: JobState, create: EnumeratorFactory) -> None:
        self._state, self.create = state, create
        self.assigner: SplitAssigner | None = None
        """Assigns splits; None: the job has not begun, or its sources have no splits."""
        self._alignment = AlignmentGroups(state.is_live)

    # -- when the job begins, or begins again

    def prepare(self) -> bool:
        """Make the enumerators; they begin when it is known from where. Returns False if the job fails by that."""
        try:
            self.assigner = SplitAssigner(self._state.graph.job_graph, self.create)
            if self._state.checkpoints.is_settled:
                self.assigner.begin(None)
        except Exception as error:
            self.failed(error, ())
            return False
        return True

    def begin(self) -> bool:
        """Have enumerators begin with the checkpoint that the job goes on from; returns False if the job fails."""
        if self.assigner is None:
            return True
        point = self._state.checkpoints.restore_point()
        try:
            self.assigner.begin(point)
        except Exception as error:
            self.failed(error, ())
            return False
        if point is not None:
            self._state.checkpoints.restarting()
        return True

    def begin_anew(self, point: RestorePoint | None) -> bool:
        """Make enumerators for a graph that has changed, going on from a checkpoint; returns False if the job fails."""
        try:
            self.assigner = SplitAssigner(self._state.graph.job_graph, self.create)
            self.assigner.begin(point)
        except Exception as error:
            self.failed(error, ())
            return False
        return True

    def restart(self, executions: Sequence[Execution]) -> bool:
        """Hand out again the splits that these new attempts need from the checkpoint on; returns False if the job fails
        by that."""
        try:
            if self.assigner is not None:
                self.assigner.restart(executions, self._state.checkpoints.restarting())
        except Exception as error:
            self.failed(error, executions)
            return False
        return True

    def failed(self, error: Exception, executions: Sequence[Execution]) -> None:
        """Fail the job, as an enumerator has raised: the program is wrong, or a source can't look for its splits."""
        if isinstance(error, GraphError):
            failure = failures.internal(error, "making the split enumerators")
        elif isinstance(error, ProgramError):
            failure = failures.of_the_user(error)
        elif isinstance(error, OSError):
            failure = failures.external(str(error), OSError)
        else:
            failure = failures.internal(error, "looking for splits", recoverable=True)
        execution = executions[0] if len(executions) == 1 else None
        self._state.failover.fail(failure, execution=execution, failed=executions)

    # -- splits

    def request(self, request: m.RequestSplits) -> m.Splits:
        """A source subtask asks for work, perhaps again because it did not get the answer.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it is not a source.
        """
        execution = self._state.task(request.execution_id)
        if self.assigner is None or not self.assigner.has(execution.vertex.id):
            raise ProtocolError("request_splits", f"{execution.task_name} is not a source")
        if not self._state.is_active or execution.state.is_terminal:
            return m.Splits((), False)
        try:
            splits = self.assigner.answer(execution, request.number, request.taken)
        except Exception as error:
            self.failed(error, [execution])
            return m.Splits((), False)
        if not splits.serial and self.assigner.someone_waits:
            self._state.set_timer(SPLITS_TIMER, self._state.settings.splits_interval)
        self._send_operator_events(self.assigner)
        return splits

    def offer(self) -> None:
        """Look again for splits for the subtasks that wait."""
        if self.assigner is None or not self._state.is_active:
            return
        try:
            splits = self.assigner.retry()
        except Exception as error:
            self.failed(error, ())
            return
        self._push(splits)
        if self.assigner.someone_waits:
            self._state.set_timer(SPLITS_TIMER, self._state.settings.splits_interval)

    def _push(self, splits: Iterable[tuple[Execution, m.Splits]]) -> None:
        for execution, push in splits:
            slot = execution.slot
            if slot is not None:
                self._state.emit(do.PushSplits(slot.taskmanager_id, slot.allocation_id, execution.id, push))

    def splits_lost(self, execution_id: str) -> None:
        """Splits did not reach a subtask: they would never be read."""
        self._message_lost(execution_id, "Splits did not reach {}: its TaskManager did not take them.")

    def watermark(self, report: ReportWatermark) -> GroupWatermark:
        """Take the watermark of a source subtask; returns how far its alignment group has come."""
        self._state.task(report.execution_id)
        return GroupWatermark(self._alignment.report(report.group, report.execution_id, report.watermark))

    # -- enumerators of users, which run in tasks of their own

    def task_reported(self, execution: Execution) -> None:
        """A task runs, or has finished."""
        link = None if self.assigner is None else self.assigner.link(execution.vertex)
        if self.assigner is None or link is None:
            return
        if execution.vertex.enumerates is not None:
            link.enumerator_runs(execution)
        elif execution.state is ExecutionState.FINISHED:
            readers = self._state.graph.vertices[VertexId(execution.vertex.id)].executions()
            if all(reader.state is ExecutionState.FINISHED for reader in readers):
                link.readers_ended()
        elif not self._state.checkpoints.has_finished(execution):
            link.reader_runs(execution)
        self._send_operator_events(self.assigner)

    def _send_operator_events(self, assigner: SplitAssigner) -> None:
        for execution, number, events in assigner.take_events():
            slot = execution.slot
            if slot is not None and not execution.state.is_terminal:
                self._state.emit(
                    do.SendOperatorEvents(slot.taskmanager_id, slot.allocation_id, execution.id, number, events)
                )

    def operator_events(self, message: OperatorEvents) -> None:
        """A user's enumerator has decided something.

        Raises:
            RpcFault: this job has no such task.
            ProtocolError: it runs no enumerator.
        """
        execution = self._state.task(message.execution_id)
        link = None if self.assigner is None else self.assigner.link(execution.vertex)
        if link is None or execution.vertex.enumerates is None:
            raise ProtocolError("send_operator_events", f"{execution.task_name} runs no enumerator")
        if not self._state.is_active or execution.state.is_terminal:
            return
        try:
            splits = link.received(execution, message.number, message.events)
        except ProtocolError as error:
            failure = failures.internal(error, "handing out splits", recoverable=True)
            self._state.failover.fail(failure, execution.slot, execution)
            return
        self._push(splits)

    def operator_events_lost(self, execution_id: str) -> None:
        """A message to a user's enumerator is lost, without which it can't go on."""
        self._message_lost(execution_id, "{} did not hear of its readers: its TaskManager did not take it.")

    def _message_lost(self, execution_id: str, text: str) -> None:
        execution = self._state.task(execution_id)
        if self._state.is_active and not execution.state.is_terminal:
            failure = failures.external(text.format(execution.task_name), RpcError, execution)
            self._state.failover.fail(failure, execution.slot, execution)
