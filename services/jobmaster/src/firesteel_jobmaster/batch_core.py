"""The decisions of the JobMaster of a job in batch mode. No I/O but of the enumerators, no waiting.

The job asks for slots like any other, and holds them while its stages run; its stages take as many cores as it has
slots. What runs is one Spark job for all stages, and, when all have ended, one for the commit: Spark cuts the first one
into stages at its shuffles, starts tasks again whose process or executor has died, and computes lost outputs anew. Of
several attempts of a task the one counts whose output Spark has taken, and so do the committables that are in it.

The commit is the point of no return: before it nothing is visible, and the job may be started anew as the restart
strategy says; behind it nothing but the commit is done again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firesteel.common.job_status import JobStatus
from firesteel.core.errors import FleetError
from firesteel.functions.metrics import USER_COUNTERS, USER_METRICS
from firesteel.graph.execution_graph import Execution, Slot
from firesteel.graph.execution_states import ExecutionState
from firesteel.protocol import messages as m
from firesteel.protocol.stages import COLLECTED, STDOUT, RunLook, Stage, failure_in
from firesteel_jobmaster import failures
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.settings import CheckpointSettings
from firesteel_jobmaster.core import SLOTS_TIMER, JobMasterCore
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.stages import plan_commit, plan_stages

logger = logging.getLogger(__name__)
COMMIT_TIMER = "commit-again"
COMMIT_PAUSE = 1.0
"""Seconds until a commit is run again that Spark could not run; nothing limits how often."""
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
        self._commit: Stage | None = None
        """What is to be committed, from when everything else is done."""
        self._collected: dict[str, list[tuple[int, bytes]]] = {}
        """Results for the client, by operator, in pieces; there from when they may be given."""
        self._held: dict[str, list[tuple[int, bytes]]] = {}
        self._text: list[bytes] = []
        self._given: set[str] = set()
        """Operators all of whose results the client has."""
        self._has_succeeded = False

    # -- from its start to its end

    def start(self) -> list[do.Instruction]:
        """The job begins: its stages are planned, and it asks for its slots."""
        self.checkpoints.start()
        graph = self.graph.job_graph
        if self.graph.restarts and any(vertex.needs_commit for vertex in graph.vertices):
            text = (
                "The JobMaster before was lost, and may have begun to commit: to run a bounded job once more could "
                "show results twice. Look at what its sinks have written, and submit it again."
            )
            self._fail(replace(failures.external(text, FleetError), recoverable=False))
            return self._take()
        try:
            self._stages = plan_stages(graph, self._create)
        except Exception as error:  # enumerators are plug-ins, and look at the world outside
            self._sources_failed(error, ())
            return self._take()
        self._move(JobStatus.CREATED, "submitted")
        self._move(JobStatus.RUNNING, "scheduling started")
        self._out.append(do.ConnectResourceManager())
        self._out.append(do.SetTimer(SLOTS_TIMER, self._settings.slot_request_timeout))
        return self._take()

    def cancel_job(self, cause: str) -> None:
        """Also ends what runs in Spark; a commit that has begun comes to its end."""
        if self._commit is not None or self._has_succeeded:
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

    def _deploy_some(self) -> None:
        """All that is scheduled is submitted at once, when everything is."""
        self._to_deploy.clear()
        scheduled = [e for e in self.graph.executions() if e.state is ExecutionState.SCHEDULED]
        if not scheduled or not self.is_active or self.graph.tally.states[ExecutionState.CREATED]:
            return
        for execution in scheduled:
            execution.machine.move(ExecutionState.DEPLOYING, "its stage is submitted to Spark")
        self._begin(self._stages)

    def _begin(self, stages: tuple[Stage, ...]) -> None:
        self._drop_run()
        graph = self.graph.job_graph
        self._runs += 1
        self._run = f"{graph.job_id}-{self.graph.restarts}-{self._runs}"
        blobs = tuple(name for name in graph.blobs)
        self._out.append(
            do.RunStages(self._run, f"{graph.name} ({graph.job_id})", self.graph.slots_needed, stages, blobs)
        )

    def _drop_run(self) -> None:
        if self._run:
            self._out.append(do.DropStages(self._run))
            self._run = ""

    def _cancel_some(self) -> None:
        """Nothing runs in slots: tasks end with their run."""
        self._drop_run()
        while self._to_cancel:
            execution, cause = self._to_cancel.popleft()
            if not execution.state.is_terminal:
                execution.machine.move(ExecutionState.CANCELED, cause)

    def _slots_lost(self, slots: Sequence[Slot], cause: str) -> None:
        """What runs, runs on; another slot is asked for."""
        if not self._deployed:
            super()._slots_lost(slots, cause)
            return
        for slot in slots:
            logger.info("slot %s is lost, nothing runs in it: %s", failures.where_is(slot), cause)
            self._drop(slot, f"lost: {cause}")

    def taskmanager_heartbeat(self, taskmanager_id: str, report: m.ExecutionReport) -> list[do.Instruction]:
        """It is alive; it runs no tasks of the job."""
        return self._take()

    # -- what runs in Spark

    def stages_seen(self, run_id: str, look: RunLook) -> list[do.Instruction]:
        """So far has the run come."""
        if run_id == self._run and self.is_active and self._commit is None:
            for job_vertex in self.graph.vertices.values():
                _, active, complete, *_ = look.progress.get(job_vertex.vertex.id, (0, 0, 0))
                if active or complete:
                    for execution in job_vertex.executions():
                        execution.report(ExecutionState.RUNNING, "its stage runs")
        return self._take()

    def stages_failed(self, run_id: str, message: str) -> list[do.Instruction]:
        """The run has failed, or nobody knows it any more."""
        if run_id != self._run or not self.is_active:
            return self._take()
        self._drop_run()
        plain = failure_in(message)
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
            for report in reports:
                execution = self.graph.vertices[report["vertex"]].executions()[report["subtask"]]
                execution.report(ExecutionState.RUNNING, "its stage has ended")
                execution.update_metrics(
                    {
                        **report["metrics"],
                        USER_METRICS: report["user-metrics"],
                        USER_COUNTERS: report["user-counters"],
                    },
                    final=True,
                )
            self._commit = plan_commit(self.graph.job_graph, reports)
            if self._commit is not None:
                self._begin((self._commit,))
                return self._take()
        self._succeeded()
        return self._take()

    def _read(self, results: Sequence[bytes]) -> list[dict[str, Any]]:
        """What tasks say about themselves; results for the client, and what was printed, are kept until all is done."""
        reports: list[dict[str, Any]] = []
        stage = 0
        self._held, self._text = {}, []
        for one in results:
            if one[0] == _MARKER:
                stage = int.from_bytes(one[1:5], "big")
            elif one[0] == COLLECTED:
                operator = self.graph.job_graph.vertex(self._stages[stage].id).collects or ""
                self._held.setdefault(operator, []).append((int.from_bytes(one[1:9], "big"), one[9:]))
            elif one[0] == STDOUT:
                self._text.append(one[1:])
            else:
                reports.append(json.loads(one[1:]))
        return reports

    def _succeeded(self) -> None:
        """All is done, and visible."""
        self._has_succeeded = True
        self._collected, self._held = self._held, {}
        if self._text:
            self._out.append(do.WriteOutput(b"".join(self._text).decode(errors="replace")))
            self._text = []
        self._finish()

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
