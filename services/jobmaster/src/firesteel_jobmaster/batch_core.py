"""The decisions of the JobMaster of a job in batch mode. No I/O but of the enumerators, no waiting.

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

import base64
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.subtask_state import Committables, OperatorSubtaskState, TaskState
from firesteel.common.job_status import JobStatus
from firesteel.core.errors import FleetError, PeerUnreachableError
from firesteel.core.ids import VertexId
from firesteel.core.text_output import ESCAPED
from firesteel.functions.metrics import USER_COUNTERS, USER_METRICS
from firesteel.graph.execution_graph import Execution, LogicalSlot
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.stages import COLLECTED, STDERR, STDOUT, RunLook, Stage, TaskProgress, failure_in
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoint_work import Done
from firesteel_jobmaster.checkpoints.pending import CheckpointPhase
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.core import SLOTS_TIMER, JobMasterCore
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.stages import CHECKPOINT, plan_commit, plan_stages, prepared_states

logger = logging.getLogger(__name__)
COMMIT_TIMER = "commit-again"
COMMIT_PAUSE = 1.0
"""Seconds until a commit is run again that Spark could not run; nothing limits how often."""
KEPT_RESULTS = 64 << 20
"""Bytes of results for the client that are stored with what is to be committed, for a JobMaster that follows. It costs
the JobMaster about a second of its time, once."""
MOST_DRIVERS, STEADY_SECONDS = 5, 600.0
"""Drivers in a row that may be lost below a run that has not lasted so long: it may be what ends them."""
SPILLED = "numBytesSpilled"
"""Metric of a task: what it, or Spark's shuffle below it, has written to disk, since it did not fit into memory."""
_MARKER = 0
_NO_REPORT = 15
"""Of a message of Spark so many lines say enough."""


def batch_settings(settings: JobMasterSettings) -> JobMasterSettings:
    """What is only for live jobs has no effect: there are no checkpoints, and the job is one region."""
    kept = settings.checkpoints
    checkpoints = CheckpointSettings(history=kept.history, storage=kept.storage, backend=kept.backend)
    return replace(settings, checkpoints=checkpoints, failover_by_region=False)


class BatchCore(JobMasterCore):
    """See the module, and ``JobMasterCore``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stages: tuple[Stage, ...] = ()
        self._run = ""
        """The run that is under way; empty = none is."""
        self._runs = 0
        self._stage_runs = 0
        """Those of all stages, not of the commit."""
        self._jobmasters = self.graph.restarts
        """That were lost before this one."""
        self._drivers_lost = 0
        """In a row, below runs that had not lasted long."""
        self._begun = 0.0
        """When the run was, in monotonic seconds."""
        self._prepared: dict[tuple[str, int], TaskState] | None = None
        """By vertex and subtask, from when all stages have ended: what is to be stored."""
        self._commit: Stage | None = None
        """What is to be committed, from when it is stored."""
        self._collected: dict[str, list[tuple[int, bytes]]] = {}
        """Results for the client, by operator, in pieces; there from when they may be given."""
        self._held: dict[str, list[tuple[int, bytes]]] = {}
        self._printed: list[tuple[int, bytes]] = []
        """Stream and text, until all is done."""
        self._given: set[str] = set()
        """Operators all of whose results the client has."""
        self._has_succeeded = self._results_are_lost = False

    # -- from its start to its end

    def start(self) -> list[do.Instruction]:
        """The job begins: its stages are planned, and it asks for its slots."""
        self.checkpoints.start()
        if self.checkpoints.is_settled and not self._plan_all():
            return self._take()
        self._move(JobStatus.CREATED, "submitted")
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        return self._take()

    def _plan_all(self) -> bool:
        """Whether it is known what to run."""
        try:
            self._stages = plan_stages(self.graph.job_graph, self._create)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, ())
            return False
        return True

    def checkpoints_settled(self) -> None:
        """See ``checkpoints.of_job.Core``: a JobMaster before has stored what is to be committed, or all is run."""
        if not self.is_active or (not self.checkpoints.is_committing and not self._stages and not self._plan_all()):
            return
        super().checkpoints_settled()

    def cancel_job(self, cause: str) -> None:
        """Also ends what runs in Spark; a commit that has begun comes to its end."""
        if self.checkpoints.is_committing or self._has_succeeded:
            logger.info("the job is not cancelled: its results are being shown")
            return
        super().cancel_job(cause)

    def timer_fired(self, name: str) -> list[do.Instruction]:
        """A timer is up."""
        if name == COMMIT_TIMER and self._commit is not None and not self._run and self.state is JobStatus.RUNNING:
            self._begin((self._commit,))
            return self._take()
        return super().timer_fired(name)

    def _let_go(self, cause: str) -> None:
        self._drop_run()
        super()._let_go(cause)

    # -- slots stand for cores; nothing runs in them

    def _submit(self, slot: LogicalSlot, tasks: Sequence[Execution]) -> None:
        """All that is scheduled is submitted at once, when everything is."""
        scheduled = [e for e in self.graph.executions() if e.state is ExecutionState.SCHEDULED]
        if not scheduled or not self.is_active or self.graph.tally.states[ExecutionState.CREATED]:
            return
        for execution in scheduled:
            execution.machine.move(ExecutionState.DEPLOYING, "its stage is submitted to Spark")
        if self.checkpoints.is_committing:
            self.checkpoints.restarting()
            for execution in scheduled:
                execution.report(ExecutionState.RUNNING, "its stage has ended before")
            self._begin_commit()
        else:
            self._prepared = None
            self._begin_stages()

    def _begin_stages(self) -> None:
        """Run all stages; their tasks count earlier runs as attempts, those below other JobMasters as well."""
        attempt = self._jobmasters + self._stage_runs
        self._stage_runs += 1
        self._begin(tuple(replace(stage, task={**stage.task, "attempt": attempt}) for stage in self._stages))

    def _begin(self, stages: tuple[Stage, ...]) -> None:
        self._drop_run()
        graph = self.graph.job_graph
        self._runs += 1
        self._begun = self._clock.monotonic()
        self._run = f"{graph.job_id}-{self._jobmasters}-{self._runs}"
        blobs = tuple(name for name in graph.blobs)
        self._out.append(
            do.StartStageRun(self._run, f"{graph.name} ({graph.job_id})", self.graph.slots_needed, stages, blobs)
        )

    def _drop_run(self) -> None:
        if self._run:
            self._out.append(do.DropStages(self._run))
            self._run = ""

    def _cancel_some(self, executions: Iterable[Execution], cause: str) -> None:
        """Nothing runs in slots: tasks end with their run."""
        self._drop_run()
        for execution in executions:
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.CANCELED, cause)

    def _slots_lost(self, slots: Sequence[LogicalSlot], cause: str) -> None:
        """What runs, runs on; another slot is asked for."""
        if not self._deployed:
            super()._slots_lost(slots, cause)
            return
        for slot in slots:
            logger.info("slot %s is lost, nothing runs in it: %s", failures.where_is(slot), cause)
            self._drop(slot, f"lost: {cause}")

    def emit(self, instruction: do.Instruction) -> None:
        """See ``checkpoints.of_job.Core``. No slot takes part in a checkpoint."""
        in_slots = do.SendTriggerCheckpoint | do.NotifyCheckpointComplete | do.NotifyCheckpointAborted
        if not isinstance(instruction, in_slots):
            super().emit(instruction)

    def taskmanager_heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> list[do.Instruction]:
        """It is alive; it runs no tasks of the job."""
        return self._take()

    # -- what runs in Spark

    def stages_seen(self, run_id: str, look: RunLook) -> list[do.Instruction]:
        """So far has the run come."""
        if run_id == self._run and self.is_active and self._commit is None:
            self.graph.spark_pages = look.pages
            for job_vertex in self.graph.vertices.values():
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
        return self._take()

    def _task_seen(self, execution: Execution, task: TaskProgress) -> None:
        """Spark says how far a task has come; one that has something to commit or to give away has not finished."""
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
            self.checkpoints.task_reported(execution)

    def _runs_now(self, execution: Execution, why: str) -> None:
        if execution.report(ExecutionState.RUNNING, why):
            self.checkpoints.task_reported(execution)

    def stages_lost(self, run_id: str) -> list[do.Instruction]:
        """Nobody knows the run any more: the driver in which it was has gone. That is no fault of the job."""
        if run_id != self._run or not self.is_active:
            return self._take()
        lasted = self._clock.monotonic() - self._begun
        self._drivers_lost = 1 if lasted >= STEADY_SECONDS else self._drivers_lost + 1
        if self._drivers_lost > MOST_DRIVERS:
            text = f"the Spark driver was lost {self._drivers_lost} times in a row, and the stages with it"
            return self.stages_failed(run_id, text)
        logger.warning("the Spark driver was lost, and the stages with it: they are run again")
        if self._commit is not None:
            self._begin((self._commit,))
        else:
            self._begin_stages()
        return self._take()

    def stages_failed(self, run_id: str, message: str) -> list[do.Instruction]:
        """The run has failed."""
        if run_id != self._run or not self.is_active:
            return self._take()
        self._drop_run()
        found = failure_in(message)
        plain = None if found is None else found.failure
        self._show(() if found is None else found.printed)
        if plain is None and self._commit is not None:
            logger.warning("the commit is run again in %g s: %s", COMMIT_PAUSE, message)
            self._out.append(do.SetTimer(COMMIT_TIMER, COMMIT_PAUSE))
            return self._take()
        execution = None if plain is None else self._execution_of(plain)
        if plain is None:
            text = "\n".join(message.splitlines()[:_NO_REPORT])
            plain = failures.external(f"Spark could not run the job's stages: {text}", FleetError).to_plain()
        elif self._commit is not None:
            plain = {**plain, "recoverable": False}  # what is shown can't be taken back
        if execution is not None:
            plain = failures.from_report(plain, execution)
            execution.report(ExecutionState.FAILED, "reported by its stage")
        self._fail(plain, None, execution)
        return self._take()

    def _execution_of(self, failure: Mapping[str, Any]) -> Execution | None:
        for job_vertex in self.graph.vertices.values():
            if job_vertex.vertex.name == failure.get("vertex_name"):
                executions = job_vertex.executions()
                subtask = failure.get("subtask")
                if isinstance(subtask, int) and 0 <= subtask < len(executions):
                    return executions[subtask]
        return None

    def stages_ended(self, run_id: str, results: Sequence[bytes]) -> list[do.Instruction]:
        """The run is done; this is what its tasks have told."""
        if run_id != self._run or not self.is_active:
            return self._take()
        self._drop_run()
        if self._commit is None:
            reports = self._read(results)
            for vertex_id, tasks in Counter(report["vertex"] for report in reports).items():
                self.graph.vertices[VertexId(vertex_id)].tasks = tasks
            for report in reports:
                execution = self.graph.vertices[VertexId(report["vertex"])].executions()[report["subtask"]]
                self._runs_now(execution, "its stage has ended")
                execution.update_metrics(
                    {
                        **report["metrics"],
                        SPILLED: max(report["metrics"].get(SPILLED, 0), execution.metrics.get(SPILLED, 0)),
                        USER_METRICS: report["user-metrics"],
                        USER_COUNTERS: report["user-counters"],
                    },
                    final=True,
                )
            for execution in self.graph.executions():
                self._runs_now(execution, "there was nothing for it to do")
            states = prepared_states(self.graph.job_graph, reports)
            if self._held or any(state.operators for state in states.values()):
                self._store(states)
                return self._take()
        self._succeeded()
        return self._take()

    # -- what is to be committed is stored before it is

    def _store(self, states: dict[tuple[str, int], TaskState]) -> None:
        """As the checkpoint at the end of all data, so that a JobMaster that follows has to do nothing but commit."""
        size = sum(len(data) for pieces in self._held.values() for _, data in pieces)
        if size <= KEPT_RESULTS:
            for vertex in self.graph.job_graph.vertices:
                if vertex.collects is not None:
                    pieces = [count.to_bytes(8, "big") + data for count, data in self._held.get(vertex.collects, [])]
                    kept = Committables(CHECKPOINT, 0, tuple(map(InlineState, pieces)))
                    before = states[vertex.id, 0]
                    own = {**before.operators, vertex.collects: OperatorSubtaskState(committables=(kept,))}
                    states[vertex.id, 0] = replace(before, operators=own)
        self._prepared = states
        for execution in self.graph.executions():
            execution.end_of_data = True
        self.checkpoints.coordinator.all_data_ended()

    def checkpoint_work_done(self, done: Done) -> list[do.Instruction]:
        """Also acknowledges for tasks, which have ended; when all is stored, it is committed."""
        self.checkpoints.coordinator.done(done)
        prepared = self._prepared
        if self.state is JobStatus.RUNNING and prepared is not None and self._commit is None:
            for pending in self.checkpoints.coordinator.pending:
                if pending.phase is CheckpointPhase.WAITING:
                    for execution in pending.plan.running:
                        state = prepared[execution.vertex.id, execution.subtask].to_bytes().decode()
                        self.checkpoints.coordinator.acknowledge(execution, pending.checkpoint_id, {}, state)
            if self.checkpoints.is_committing:
                self._begin_commit()
        return self._take()

    def _begin_commit(self) -> None:
        """All is stored: what the sinks have prepared becomes visible."""
        point = self.checkpoints.restore_point()
        assert point is not None
        states = point.metadata.operators
        if self._prepared is None:
            self._take_over({state.operator_id: state.subtasks.get(0) for state in states})
        self._prepared = {}
        self._commit = plan_commit(self.graph.job_graph, states)
        if json.loads(self._commit.tasks[0].own or "[]"):
            self._begin((self._commit,))
        else:
            self._succeeded()

    def _take_over(self, states: Mapping[str, OperatorSubtaskState | None]) -> None:
        """Results for the client that a JobMaster before has stored."""
        for vertex in self.graph.job_graph.vertices:
            if vertex.collects is None:
                continue
            state = states.get(vertex.collects)
            if state is None:
                self._results_are_lost = True
                continue
            items = [item.data for some in state.committables for item in some.items if isinstance(item, InlineState)]
            self._held[vertex.collects] = [(int.from_bytes(item[:8], "big"), item[8:]) for item in items]

    def _read(self, results: Sequence[bytes]) -> list[dict[str, Any]]:
        """What tasks say about themselves; results for the client, and what was printed, are kept until all is done."""
        reports: list[dict[str, Any]] = []
        stage = 0
        self._held, self._printed = {}, []
        for one in results:
            if one[0] == _MARKER:
                stage = int.from_bytes(one[1:5], "big")
            elif one[0] == COLLECTED:
                operator = self.graph.job_graph.vertex(self._stages[stage].id).collects or ""
                self._held.setdefault(operator, []).append((int.from_bytes(one[1:9], "big"), one[9:]))
            elif one[0] in (STDOUT, STDERR):
                self._printed.append((one[0], one[1:]))
            else:
                reports.append(json.loads(one[1:]))
        return reports

    def _succeeded(self) -> None:
        """All is done, and visible."""
        if self._results_are_lost:
            text = (
                "What the job's sinks have written is visible, but its results for the program were more than "
                f"{KEPT_RESULTS} bytes, and were lost with a JobMaster: write them to a sink"
            )
            self._fail(replace(failures.external(text, PeerUnreachableError), recoverable=False))
            return
        self._has_succeeded = True
        self._collected, self._held = self._held, {}
        self._show((stream, text.decode(errors=ESCAPED)) for stream, text in self._printed)
        self._printed = []
        self._finish()

    def _show(self, printed: Iterable[tuple[int, str]]) -> None:
        for stream, some in groupby(printed, key=itemgetter(0)):
            self._out.append(do.WriteOutput("".join(text for _, text in some), is_error=stream == STDERR))

    def _finish(self) -> None:
        """Tasks have finished; one whose results the client wants, when it has got them."""
        for execution in self.graph.executions():
            collects = execution.vertex.collects
            if collects is None or collects in self._given or self.state is not JobStatus.RUNNING:
                execution.report(ExecutionState.FINISHED, "its stage has ended, and its results are visible")
        self._check_end()

    # -- results for the client

    def give(self, operator_id: str, offset: int) -> tuple[m.CollectedFromJob | None, list[do.Instruction]]:
        """Results from ``offset`` on; None as long as it is not known what there is.

        Raises:
            ProtocolError: the job has no such operator.
        """
        self.collector(operator_id)
        if not self._has_succeeded:
            if self.is_terminal:
                return m.CollectedFromJob(offset, 0, True, "", self.state.name), self._take()
            return None, self._take()
        at, pieces = 0, self._collected.get(operator_id, [])
        for number, (count, data) in enumerate(pieces):
            if at == offset:
                end = number == len(pieces) - 1
                if end:
                    self._all_given(operator_id)
                text = base64.b64encode(data).decode()
                return m.CollectedFromJob(offset, count, end, text, self.state.name), self._take()
            at += count
        self._all_given(operator_id)
        return m.CollectedFromJob(offset, 0, True, "", self.state.name), self._take()

    def _all_given(self, operator_id: str) -> None:
        self._given.add(operator_id)
        if not self.is_terminal:
            self._finish()
