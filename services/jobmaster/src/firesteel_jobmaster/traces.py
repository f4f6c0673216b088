"""Traces of a job: its start, each checkpoint, each recovery. Spans are made of what is over, from recorded times."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from firesteel.core.ids import VertexId
from firesteel.graph.execution_graph import Execution, ExecutionGraph, FailureEntry
from firesteel.graph.execution_states import ExecutionState
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span, Value
from firesteel_jobmaster.checkpoints.statistics import COMPLETED, METRICS, CheckpointRecord

logger = logging.getLogger(__name__)
KEPT_CHECKPOINTS: Final = 32
"""Number of latest checkpoints that a recovery may be linked to."""


class JobTraces:
    """Looks at the graph of a job after each event; exports spans of what is over.

    Args:
        export: takes spans.
        graph: of the job.
        start: the span of the submission; None = there is none.
        restored: says from which checkpoint the job went on last, and since when (epoch ms); None = from none yet.
        reporters: plain reporters to which slots export their spans.
    """

    def __init__(
        self,
        export: Callable[[Iterable[Span]], None],
        graph: ExecutionGraph,
        start: TraceContext | None,
        restored: Callable[[], tuple[int, int] | None],
        reporters: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._export, self._graph, self._restored, self._reporters = export, graph, restored, list(reporters)
        self._job: dict[str, Value] = {"job.id": graph.job_graph.job_id, "job.name": graph.job_graph.name}
        self._checkpoints: OrderedDict[int, TraceContext] = OrderedDict()
        self._begin_ms = graph.clock.epoch_ms()
        self._entry: FailureEntry | None = None
        self._is_over = self._is_later = False
        """The present start or recovery has ended; it is a recovery that this JobMaster has seen begin."""
        self._links: list[TraceContext] = []
        self._parent: TraceContext | None = None
        if graph.failures:  # a JobMaster before this one was lost
            self._entry = graph.failures[-1]
            self.root = TraceContext.new()
            self._links = [] if start is None else [start]
        else:
            self.root = TraceContext.new() if start is None else start.child()
            self._parent = start

    def for_slots(self) -> dict[str, Any]:
        """Trace context and reporters for slots that are told to run tasks now (``Deployment.trace``)."""
        return {"traceparent": self.root.header, "reporters": self._reporters}

    # -- starts and recoveries

    def look(self) -> None:
        self._safely(self._look)

    def _safely(self, work: Callable[[], None]) -> None:
        """Do work on traces; an error costs the trace, and never the job."""
        try:
            work()
        except Exception:
            logger.exception("a trace of job %s is lost", self._graph.job_graph.job_id)
            self._is_over = True

    def _look(self) -> None:
        graph = self._graph
        entry = graph.failures[-1] if graph.failures else None
        if entry is not None and entry is not self._entry:
            if not self._is_over:
                self._end_phase(_reason(entry))
            self._entry, self._is_over, self._is_later = entry, False, True
            self._links, self._parent = [self.root], None
            self.root, self._begin_ms = TraceContext.new(), entry.root.timestamp_ms
        if self._is_over:
            return
        if graph.all_run():
            self._end_phase("")
        elif graph.state.is_terminal_state():
            failed = graph.state.name == "FAILED" and self._entry is not None
            self._end_phase(_reason(self._entry) if failed and self._entry is not None else "")

    def _end_phase(self, error: str) -> None:
        self._is_over = True
        end = self._graph.clock.epoch_ms()
        recovers, links = self._entry is not None, list(self._links)
        attributes: dict[str, Value] = {**self._job, "job.state": self._graph.state.name}
        if self._entry is not None:
            attributes |= self._about_failure(self._entry)
        restored = self._restored()
        if restored is not None and restored[1] >= self._begin_ms:
            attributes["checkpoint.id"] = restored[0]
            if restored[0] in self._checkpoints:
                links.append(self._checkpoints[restored[0]])
        executions = self._graph.executions()
        if self._is_later:
            executions = [
                execution
                for execution in executions
                if execution.machine.entered_ms[ExecutionState.CREATED] >= self._begin_ms
            ]
        root = Span(
            self.root,
            "Recovery" if recovers else "JobInitialization",
            self._begin_ms,
            end,
            self._parent,
            attributes,
            links,
            error,
            self._first_running(executions),
        )
        self._export(
            [
                root,
                *self._steps(executions, recovers),
                *(s for execution in executions for s in self._attempt(execution, restored, end)),
            ]
        )

    @staticmethod
    def _about_failure(entry: FailureEntry) -> dict[str, Value]:
        root = entry.root
        values = {
            "failure.class": root.failure.get("error_class"),
            "failure.message": root.failure.get("message"),
            "failure.task": root.task_name,
            "taskmanager.id": root.taskmanager_id,
        }
        return {name: str(value)[:1000] for name, value in values.items() if value}

    def _steps(self, executions: list[Execution], recovers: bool) -> list[Span]:
        """Spans of the steps of a start or recovery, one after the other."""
        stamps = [execution.machine.entered_ms for execution in executions]
        created = min((at[ExecutionState.CREATED] for at in stamps), default=self._begin_ms)
        scheduled = [at[ExecutionState.SCHEDULED] for at in stamps if ExecutionState.SCHEDULED in at]
        initializing = [at[ExecutionState.INITIALIZING] for at in stamps if ExecutionState.INITIALIZING in at]
        steps: list[Span] = []
        if recovers:
            ends = [end for execution in executions if (end := self._end_of_former(execution)) is not None]
            cancelled = max(ends, default=self._begin_ms)
            steps.append(self._step("Cancelling", self._begin_ms, cancelled))
            if created > cancelled:
                steps.append(self._step("RestartDelay", cancelled, created))
        if scheduled:
            steps.append(self._step("Slots", created if recovers else self._begin_ms, max(scheduled)))
            if initializing:
                steps.append(self._step("Deployment", min(scheduled), max(initializing)))
        return steps

    def _end_of_former(self, execution: Execution) -> int | None:
        attempts = self._graph.vertices[VertexId(execution.vertex.id)].subtasks[execution.subtask].attempts
        if len(attempts) < 2:
            return None
        ended: int = max(attempts[-2].machine.entered_ms.values())
        return ended if ended >= self._begin_ms else None

    def _step(self, name: str, begin_ms: int, end_ms: int) -> Span:
        return Span(self.root.child(), name, begin_ms, end_ms, self.root, self._job)

    @staticmethod
    def _first_running(executions: list[Execution]) -> dict[str, int]:
        running = [
            at
            for execution in executions
            if (at := execution.machine.entered_ms.get(ExecutionState.RUNNING)) is not None
        ]
        return {"first task is RUNNING": min(running)} if running else {}

    def _attempt(self, execution: Execution, restored: tuple[int, int] | None, now: int) -> list[Span]:
        """Spans of an attempt until it was RUNNING, or had ended before."""
        at = execution.machine.entered_ms
        begin = at.get(ExecutionState.SCHEDULED)
        if begin is None:
            return []
        end = at.get(ExecutionState.RUNNING) or (at[execution.state] if execution.state.is_terminal else now)
        context = self.root.below(execution.id)
        attributes = {**self._of_task(execution.vertex.id, execution.vertex.name, execution.subtask)}
        attributes["attempt"] = execution.attempt
        if execution.slot is not None:
            attributes["taskmanager.id"] = execution.slot.taskmanager_id
        failed = execution.state is ExecutionState.FAILED and ExecutionState.RUNNING not in at
        cause = execution.machine.history[-1].cause if failed else ""
        spans = [Span(context, "Attempt", begin, end, self.root, attributes, error=cause)]
        sent, initializing = at.get(ExecutionState.DEPLOYING), at.get(ExecutionState.INITIALIZING)
        if sent is not None and initializing is not None:
            spans.append(Span(context.below("Deploy"), "Deploy", sent, initializing, context, attributes))
            name = "Initialize" if restored is None else "Restore"
            spans.append(Span(context.below("Initialize"), name, initializing, end, context, attributes))
        return spans

    def _of_task(self, vertex_id: str, name: str, subtask: int) -> dict[str, Value]:
        return {**self._job, "vertex.id": vertex_id, "vertex.name": name, "subtask": subtask}

    # -- checkpoints

    def checkpoint_ended(self, record: CheckpointRecord) -> None:
        """A checkpoint is complete, or has failed."""
        self._safely(lambda: self._end_checkpoint(record))

    def _end_checkpoint(self, record: CheckpointRecord) -> None:
        job_id = self._graph.job_graph.job_id
        root = TraceContext.of_checkpoint(job_id, record.id) if record.id else TraceContext.new()
        completed = record.status == COMPLETED
        attributes: dict[str, Value] = {**self._job, "checkpoint.status": record.status}
        if record.id:
            attributes["checkpoint.id"] = record.id
        if completed:
            self._checkpoints[record.id] = root
            while len(self._checkpoints) > KEPT_CHECKPOINTS:
                self._checkpoints.popitem(last=False)
            attributes |= {
                "checkpoint.size": record.total("checkpointed_size"),
                "checkpoint.full_size": record.total("state_size"),
                "checkpoint.location": record.location,
            }
        error = "" if completed else record.message or "the checkpoint failed"
        spans = [Span(root, "Checkpoint", record.trigger_ms, record.ended_ms, None, attributes, [self.root], error)]
        names = {vertex.id: vertex.name for vertex in self._graph.job_graph.vertices}
        acknowledged = [
            (vertex_id, subtask, values)
            for vertex_id, subtasks in record.acknowledged.items()
            for subtask, values in subtasks.items()
        ]
        begun = [record.trigger_ms + values[1 + METRICS.index("start_delay_ms")] for _, _, values in acknowledged]
        if begun:
            trigger = min(max(record.trigger_ms, min(begun)), record.ended_ms)
            spans.append(Span(root.child(), "Trigger", record.trigger_ms, trigger, root, attributes))
        for vertex_id, subtask, values in acknowledged:
            about = self._of_task(vertex_id, names.get(vertex_id, ""), subtask)
            about |= {"attempt": record.attempts.get((vertex_id, subtask), 0)}
            spans += _subtask(root, record, values, {**about, "checkpoint.id": record.id})
        if completed and acknowledged:
            last = max(values[0] for _, _, values in acknowledged)
            spans.append(Span(root.child(), "Completion", last, record.ended_ms, root, attributes))
            commit_attributes = {**attributes, "tasks": sum(record.subtasks.values())}
            spans.append(Span(root.child(), "Commit", record.ended_ms, record.ended_ms, root, commit_attributes))
        self._export(spans)


def _subtask(
    root: TraceContext, record: CheckpointRecord, values: tuple[int, ...], attributes: Mapping[str, Value]
) -> list[Span]:
    """Spans of a subtask from the trigger to its acknowledgement. Slots trace what follows the delay, below the same
    span."""
    figures = dict(zip(METRICS, values[1:], strict=True))
    end = max(values[0], record.trigger_ms)
    context = root.below(f"{attributes['vertex.id']}_{attributes['subtask']}_{attributes['attempt']}")
    metrics = {f"checkpoint.{name}": value for name, value in figures.items()}
    delayed = min(record.trigger_ms + max(0, figures["start_delay_ms"]), end)
    return [
        Span(context, "Subtask", record.trigger_ms, end, root, {**attributes, **metrics}),
        Span(context.child(), "StartDelay", record.trigger_ms, delayed, context, attributes),
    ]


def _reason(entry: FailureEntry) -> str:
    failure: Mapping[str, Any] = entry.root.failure
    return f"{failure.get('error_class', '')}: {failure.get('message', '')}"[:1000]
