"""The layout of batch mode: tasks run as stages in Spark. No I/O but of the enumerators, no waiting.

The job asks for slots like any other, and holds them while its stages run; its stages take as many cores as it has
slots. What runs is one Spark job for all stages, and, when all have ended, one for the commit: Spark cuts the first one
into stages at its shuffles, starts tasks again whose process or executor has died, and computes lost outputs anew. Of
several attempts of a task the one counts whose output Spark has taken, and so do the committables that are in it.

The commit is the point of no return: before it nothing is visible, and the job may be started anew as the restart
strategy says. When all stages have ended, what their tasks have prepared is stored as the last checkpoint of the job,
as that of a stream at the end of its data is; tasks acknowledge it by their reports. From then on nothing but the
commit is done, again and again, by this JobMaster or by one that follows.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from typing_extensions import override

from firesteel.checkpoint.subtask_state import TaskState
from firesteel.common.job_status import JobStatus
from firesteel.core.errors import FleetError, PeerUnreachableError
from firesteel.core.ids import VertexId
from firesteel.functions.metrics import OPERATORS, USER_COUNTERS, USER_METRICS
from firesteel.graph.execution_graph import Execution
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.stages import STDERR, RunLook, Stage, TaskProgress, failure_in
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.pending import CheckpointPhase
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.client_results import ClientResults
from firesteel_jobmaster.fixed_layout import FixedLayout
from firesteel_jobmaster.layout import SlotTasks
from firesteel_jobmaster.parts import JobParts
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.spark_runs import SparkRuns
from firesteel_jobmaster.stages import plan_commit, plan_stages, prepared_states

logger = logging.getLogger(__name__)
COMMIT_TIMER = "commit-again"
COMMIT_PAUSE = 1.0
"""Seconds until a commit is run again that Spark could not run; nothing limits how often."""
KEPT_RESULTS = 64 << 20
"""Bytes of results for the client that are stored with what is to be committed, for a JobMaster that follows. It costs
the JobMaster about a second of its time, once."""
SPILLED = "numBytesSpilled"
"""Metric of a task: bytes that it, or Spark's shuffle below it, has written to disk as they did not fit into memory."""
_REASON_LINES = 15
"""Lines of a message of Spark that are shown; the rest is its stack."""


def batch_settings(settings: JobMasterSettings) -> JobMasterSettings:
    """The settings of a batch job: it takes no periodic checkpoints, and is one region."""
    former = settings.checkpoints
    checkpoints = CheckpointSettings(history=former.history, storage=former.storage, backend=former.backend)
    return replace(settings, checkpoints=checkpoints, failover_by_region=False)


class BatchLayout(FixedLayout):
    """Slots stand for cores: when the job has all of them, its stages run in Spark, and then the commit."""

    runs_in_slots = False

    def __init__(self, parts: JobParts) -> None:
        super().__init__(parts)
        self._runs = SparkRuns(self.state)
        self._stages: tuple[Stage, ...] = ()
        self._prepared: dict[tuple[str, int], TaskState] | None = None
        """States to be stored, by vertex and subtask; None until all stages have ended."""
        self._commit: Stage | None = None
        """The stage that commits; None until what it commits is stored."""
        self._results = ClientResults()

    # -- from its start to its end

    @override
    def prepare(self) -> bool:
        return not self.state.checkpoints.is_settled or self._plan_all()

    def _plan_all(self) -> bool:
        """Plan the stages; returns False if that fails, by which the job fails."""
        try:
            self._stages = plan_stages(self.state.graph.job_graph, self.job.sources.create)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self.job.sources.failed(error, ())
            return False
        return True

    @override
    def settled(self) -> None:
        """Begin with the commit, if a former JobMaster has stored what is to be committed; else run all stages."""
        is_planned = self.state.checkpoints.is_committing or self._stages
        if self.state.is_active and (is_planned or self._plan_all()):
            super().settled()

    @override
    def may_cancel(self) -> bool:
        """Refuse to cancel a commit that has begun: some results may be visible."""
        return not (self.state.checkpoints.is_committing or self._results.are_visible)

    @override
    def timer_fired(self, name: str) -> bool:
        if name != COMMIT_TIMER:
            return False
        if self._commit is not None and not self._runs.current and self.state.status is JobStatus.RUNNING:
            self._runs.begin((self._commit,))
        return True

    @override
    def job_ended(self) -> None:
        self._runs.drop()

    @override
    def validate(self) -> None:
        assert not self.state.is_terminal or not self._runs.current, "the job has ended, and its stages run"

    # -- slots stand for cores; nothing runs in them

    @override
    def submit(self, by_slot: Sequence[SlotTasks]) -> Iterable[None]:
        """Submit all tasks at once, as soon as the last one is scheduled."""
        graph, checkpoints = self.state.graph, self.state.checkpoints
        scheduled = [e for e in graph.executions() if e.state is ExecutionState.SCHEDULED]
        if not scheduled or not self.state.is_active or graph.tally.states[ExecutionState.CREATED]:
            return ()
        for execution in scheduled:
            execution.machine.move(ExecutionState.DEPLOYING, "its stage is submitted to Spark")
        if checkpoints.is_committing:
            checkpoints.restarting()
            for execution in scheduled:
                execution.report(ExecutionState.RUNNING, "its stage has ended before")
            self._begin_commit()
        else:
            self._prepared = None
            self._runs.begin_all(self._stages)
        return ()

    @override
    def cancel(self, executions: Iterable[Execution], cause: str) -> None:
        """Tasks end with their run."""
        self._runs.drop()
        for execution in executions:
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.CANCELED, cause)

    # -- what runs in Spark

    def stages_seen(self, run_id: str, look: RunLook) -> None:
        """Take over how far a run has come."""
        if run_id == self._runs.current and self.state.is_active and self._commit is None:
            self.state.graph.spark_pages = look.pages
            for job_vertex in self.state.graph.vertices.values():
                stage = look.progress.get(job_vertex.vertex.id)
                executions = job_vertex.executions()
                if stage is None:
                    continue
                job_vertex.tasks, job_vertex.spark_stage = min(stage.tasks, len(executions)), stage.number
                for task in stage.subtasks:
                    if 0 <= task.subtask < len(executions):
                        self._task_seen(executions[task.subtask], task)
                for execution in executions[job_vertex.tasks :]:
                    self._may_finish(execution, "what there is to read needs no more tasks")

    def _task_seen(self, execution: Execution, task: TaskProgress) -> None:
        """Take over how far a task has come; one that commits, or has results for the client, has not finished."""
        execution.update_metrics(
            {
                "numRecordsIn": task.records_in,
                "numRecordsOut": task.records_out,
                "numBytesIn": task.bytes_in,
                "numBytesOut": task.bytes_out,
                SPILLED: task.spilled,
            }
        )
        self._runs_now(execution, "its task runs in Spark")
        if task.status == "SUCCESS":
            self._may_finish(execution, "its task has ended in Spark")

    def _may_finish(self, execution: Execution, why: str) -> None:
        vertex = execution.vertex
        if vertex.needs_commit or vertex.collects is not None:
            return
        if execution.report(ExecutionState.FINISHED, why):
            self.state.checkpoints.task_reported(execution)

    def _runs_now(self, execution: Execution, why: str) -> None:
        if execution.report(ExecutionState.RUNNING, why):
            self.state.checkpoints.task_reported(execution)

    def stages_lost(self, run_id: str) -> None:
        """Run the stages again: the driver in which they ran has gone, which is no fault of the job."""
        if run_id != self._runs.current or not self.state.is_active:
            return
        if self._runs.driver_lost():
            text = f"the Spark driver was lost {self._runs.drivers_lost} times in a row, and the stages with it"
            self.stages_failed(run_id, text)
            return
        logger.warning("the Spark driver was lost, and the stages with it: they are run again")
        if self._commit is not None:
            self._runs.begin((self._commit,))
        else:
            self._runs.begin_all(self._stages)

    def stages_failed(self, run_id: str, message: str) -> None:
        """Fail the job, or run the commit again: Spark could not finish a run."""
        if run_id != self._runs.current or not self.state.is_active:
            return
        self._runs.drop()
        failure_report = failure_in(message)
        plain = None if failure_report is None else failure_report.failure
        self._show(() if failure_report is None else failure_report.printed)
        if plain is None and self._commit is not None:
            logger.warning("the commit is run again in %g s: %s", COMMIT_PAUSE, message)
            self.state.set_timer(COMMIT_TIMER, COMMIT_PAUSE)
            return
        execution = None if plain is None else self._execution_of(plain)
        if plain is None:
            text = "\n".join(message.splitlines()[:_REASON_LINES])
            plain = failures.external(f"Spark could not run the job's stages: {text}", FleetError).to_plain()
        elif self._commit is not None:
            plain = {**plain, "recoverable": False}  # what is shown can't be taken back
        if execution is not None:
            plain = failures.from_report(plain, execution)
            execution.report(ExecutionState.FAILED, "reported by its stage")
        self.state.failover.fail(plain, None, execution)

    def _execution_of(self, failure: Mapping[str, Any]) -> Execution | None:
        for job_vertex in self.state.graph.vertices.values():
            if job_vertex.vertex.name == failure.get("vertex_name"):
                executions = job_vertex.executions()
                subtask = failure.get("subtask")
                if isinstance(subtask, int) and 0 <= subtask < len(executions):
                    return executions[subtask]
        return None

    def stages_ended(self, run_id: str, results: Sequence[bytes]) -> None:
        """A run is done. Its results are stored to be committed; after the run of the commit the job has succeeded.

        Args:
            run_id: of the run.
            results: reports of its tasks.
        """
        if run_id != self._runs.current or not self.state.is_active:
            return
        self._runs.drop()
        if self._commit is None:
            graph = self.state.graph.job_graph
            reports = self._results.read(results, [graph.vertex(stage.id).collects for stage in self._stages])
            for vertex_id, tasks in Counter(report["vertex"] for report in reports).items():
                self.state.graph.vertices[VertexId(vertex_id)].tasks = tasks
            for report in reports:
                execution = self.state.graph.vertices[VertexId(report["vertex"])].executions()[report["subtask"]]
                self._runs_now(execution, "its stage has ended")
                execution.update_metrics(
                    {
                        **report["metrics"],
                        SPILLED: max(report["metrics"].get(SPILLED, 0), execution.metrics.get(SPILLED, 0)),
                        OPERATORS: report["operators"],
                        USER_METRICS: report["user-metrics"],
                        USER_COUNTERS: report["user-counters"],
                    },
                    final=True,
                )
            for execution in self.state.graph.executions():
                self._runs_now(execution, "there was nothing for it to do")
            states = prepared_states(graph, reports)
            if self._results.pieces or any(state.operators for state in states.values()):
                self._store(states)
                return
        self._succeeded()

    # -- what is to be committed is stored before it is

    def _store(self, states: dict[tuple[str, int], TaskState]) -> None:
        """Store what is to be committed as a last checkpoint, so that a JobMaster that follows only commits it."""
        if self._results.size <= KEPT_RESULTS:
            for vertex in self.state.graph.job_graph.vertices:
                if vertex.collects is not None:
                    state = states[vertex.id, 0]
                    operators = {**state.operators, vertex.collects: self._results.stored(vertex.collects)}
                    states[vertex.id, 0] = replace(state, operators=operators)
        self._prepared = states
        for execution in self.state.graph.executions():
            execution.end_of_data = True
        self.state.checkpoints.coordinator.all_data_ended()

    @override
    def checkpoint_work_done(self) -> None:
        """Acknowledge the last checkpoint in place of the tasks, which have ended; commit once it is complete."""
        prepared = self._prepared
        if self.state.status is JobStatus.RUNNING and prepared is not None and self._commit is None:
            for pending in self.state.checkpoints.coordinator.pending:
                if pending.phase is CheckpointPhase.WAITING:
                    for execution in pending.plan.running:
                        state = prepared[execution.vertex.id, execution.subtask].to_bytes().decode()
                        self.state.checkpoints.coordinator.acknowledge(execution, pending.checkpoint_id, {}, state)
            if self.state.checkpoints.is_committing:
                self._begin_commit()

    def _begin_commit(self) -> None:
        """Run the commit, by which what the sinks have prepared becomes visible: all of it is stored."""
        point = self.state.checkpoints.restore_point()
        assert point is not None
        states = point.metadata.operators
        if self._prepared is None:
            stored = {state.operator_id: state.subtasks.get(0) for state in states}
            collects = (vertex.collects for vertex in self.state.graph.job_graph.vertices)
            self._results.take_over({id_: stored.get(id_) for id_ in collects if id_ is not None})
        self._prepared = {}
        self._commit = plan_commit(self.state.graph.job_graph, states)
        if json.loads(self._commit.tasks[0].own or "[]"):
            self._runs.begin((self._commit,))
        else:
            self._succeeded()

    def _succeeded(self) -> None:
        """Finish the job: all results are visible."""
        if self._results.are_lost:
            text = (
                "What the job's sinks have written is visible, but its results for the program were more than "
                f"{KEPT_RESULTS} bytes, and were lost with a JobMaster: write them to a sink"
            )
            self.state.failover.fail(replace(failures.external(text, PeerUnreachableError), recoverable=False))
            return
        self._show(self._results.show())
        self._finish()

    def _show(self, printed: Iterable[tuple[int, str]]) -> None:
        for stream, pieces in groupby(printed, key=itemgetter(0)):
            self.state.emit(do.WriteOutput("".join(text for _, text in pieces), is_error=stream == STDERR))

    def _finish(self) -> None:
        """Finish the tasks; one with results for the client only when the client has got them."""
        for execution in self.state.graph.executions():
            collects = execution.vertex.collects
            if collects is None or self._results.has_given_all(collects) or self.state.status is not JobStatus.RUNNING:
                execution.report(ExecutionState.FINISHED, "its stage has ended, and its results are visible")
        self.job.ending.check()

    # -- results for the client

    def give(self, operator_id: str, offset: int) -> m.CollectedFromJob | None:
        """Results from ``offset`` on; None as long as the job has not succeeded, and may."""
        if not self._results.are_visible:
            is_over = self.state.is_terminal
            return m.CollectedFromJob(offset, 0, True, "", self.state.status.name) if is_over else None
        count, is_last, data = self._results.give(operator_id, offset)
        if is_last and not self.state.is_terminal:
            self._finish()
        return m.CollectedFromJob(offset, count, is_last, data, self.state.status.name)
