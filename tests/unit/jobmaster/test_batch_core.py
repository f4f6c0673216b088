"""Jobs in batch mode: what is decided when stages run, fail and end, and which task reads what."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from firesteel.checkpoint.metadata import CheckpointMetadata
from firesteel.checkpoint.store import StoredCheckpoint
from firesteel.connectors.enumerators import create_enumerator
from firesteel.core.errors import GraphError
from firesteel.graph.job_archive import archive_of, unpacked
from firesteel.graph.job_graph import JobEdge, JobGraph, OperatorInfo
from firesteel.graph.key_groups import key_group_range
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.stages import (
    COLLECTED,
    FAILURE,
    PRINTED,
    STDERR,
    STDOUT,
    RunLook,
    Stage,
    StageProgress,
    StageTaskInput,
    TaskProgress,
)
from firesteel_jobmaster import batch_layout
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.batch_layout import KEPT_RESULTS, batch_settings
from firesteel_jobmaster.checkpoint_work import Complete, Prepare, Recover, RecoveredCheckpoint, Work, WorkResult
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.restart_strategies import FixedDelay
from firesteel_jobmaster.settings import JobMasterSettings
from firesteel_jobmaster.spark_runs import MOST_DRIVERS, STEADY_SECONDS
from firesteel_jobmaster.stages import plan_stages
from tests.unit.jobmaster.jobs import Driver, job, two_by_two, vertex, vertex_id, with_user_enumerator

BATCH = {"execution.runtime-mode": "BATCH"}
OP = vertex_id(2)
"""The operator that commits."""


class Batch(Driver):
    """A core of a job in batch mode."""

    def __init__(self, graph: JobGraph, settings: JobMasterSettings | None = None, **arguments: Any) -> None:
        graph = replace(graph, config={**graph.config, **BATCH})
        super().__init__(graph)
        self.core = JobMasterCore(graph, batch_settings(settings or JobMasterSettings()), self.clock, **arguments)
        self.core.validates = True
        self.stored: list[CheckpointMetadata] = []
        self.storage_is_away = False

    def did(self, instructions: list[do.Instruction]) -> list[do.Instruction]:
        super().did(instructions)
        for instruction in instructions:
            if isinstance(instruction, do.CheckpointWork):
                self.did(self.core.checkpoint_work_done(self.answer(instruction.work)))
        return instructions

    def answer(self, work: Work) -> WorkResult:
        if self.storage_is_away:
            return WorkResult(work, error="away")
        match work:
            case Recover():
                return WorkResult(
                    work,
                    recovered=tuple(
                        RecoveredCheckpoint(StoredCheckpoint(1, "here"), checkpoint) for checkpoint in self.stored
                    ),
                )
            case Prepare():
                return WorkResult(work, checkpoint_id=1)
            case Complete(metadata):
                self.stored.append(CheckpointMetadata.from_bytes(metadata.to_bytes(), "here"))
                return WorkResult(work, location="here", stored=True)
            case _:
                return WorkResult(work)

    def begun(self) -> do.StartStageRun:
        self.start()
        self.offer(0, 1)
        return self.seen(do.StartStageRun)[-1]

    def elements_of_tasks(self, commit: dict[str, list[Any]] | None = None, *more: bytes) -> list[bytes]:
        """Elements that the tasks of all stages send; those of the last vertex have this to commit."""
        elements: list[bytes] = []
        vertices = self.core.graph.job_graph.vertices
        for number, job_vertex in enumerate(vertices):
            elements.append(b"\0" + number.to_bytes(4, "big"))
            for subtask in range(job_vertex.parallelism):
                plain = {
                    "vertex": job_vertex.id, "subtask": subtask, "attempt": 3, "metrics": {"numRecordsIn": 5},
                    "operators": {"map": [5, 5, 0.0, 0.0, 12.5, 0.0]}, "user-metrics": {}, "user-counters": [],
                    "commit": (commit or {}) if number == len(vertices) - 1 else {},
                }  # fmt: skip
                elements.append(b"R" + json.dumps(plain).encode())
        return elements + list(more)


def user_failure(vertex_name: str = "V2", subtask: int = 1, printed: Sequence[tuple[int, str]] = ()) -> str:
    failure = TaskFailure("user", "builtins.ValueError", "boom", "Traceback", vertex_name=vertex_name, subtask=subtask)
    plain = json.dumps({**failure.to_plain(), PRINTED: printed})
    return f"Job aborted: PythonException: RuntimeError: {FAILURE}{plain}\n\tat java.lang"


def attempts(run: do.StartStageRun) -> list[int]:
    """The attempt of each stage's tasks, where Spark does not repeat them."""
    return [stage.task["attempt"] for stage in run.stages]


def run_look(*tasks: TaskProgress, vertex: int = 1) -> RunLook:
    plain = StageProgress(2, 1, 0, 0, 7, tasks).to_plain()
    return RunLook("running", "", {vertex_id(vertex): StageProgress.from_plain(json.loads(json.dumps(plain)))})


def collecting() -> JobGraph:
    return job(vertex(1, 2, splits=["a"]), vertex(2, 1, collects=OP))


def test_stages_begin_when_all_slots_are_there_and_take_as_many_cores() -> None:
    d = Batch(two_by_two())
    d.start()
    d.offer(0)
    assert not d.seen(do.StartStageRun)
    d.offer(1)
    (run,) = d.seen(do.StartStageRun)
    assert run.cores == 2
    assert [stage.id for stage in run.stages] == [vertex_id(1), vertex_id(2)]
    assert not d.seen(do.SubmitSlot), "nothing runs in slots"
    assert {d.state(id_) for id_ in d.ids()} == {"DEPLOYING"}


def test_a_job_without_a_commit_has_finished_with_its_stages() -> None:
    d = Batch(two_by_two())
    run = d.begun()
    d.did(d.core.stages_seen(run.run_id, run_look(TaskProgress(1, "RUNNING", 3, 30, 2, 20, 10))))
    assert [d.state(id_) for id_ in d.ids()] == ["DEPLOYING", "RUNNING", "DEPLOYING", "DEPLOYING"]
    metrics = d.core.graph.executions()[1].metrics
    assert (metrics["numRecordsIn"], metrics["numBytesOut"], metrics["numBytesSpilled"]) == (3, 20, 10)
    d.did(d.core.stages_seen(run.run_id, run_look(TaskProgress(0, "SUCCESS"), TaskProgress(1, "FAILED"))))
    assert [d.state(id_) for id_ in d.ids()] == ["FINISHED", "RUNNING", "DEPLOYING", "DEPLOYING"]
    d.did(d.core.stages_ended("another", d.elements_of_tasks()))
    assert not d.core.is_terminal
    text = bytes((STDOUT,)) + b"1\n", bytes((STDOUT,)) + b"2\n", bytes((STDERR,)) + b"odd\n"
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({}, b"\0\0\0\0\1", *text)))
    assert d.core.state.name == "FINISHED"
    assert d.seen(do.WriteOutput) == [do.WriteOutput("1\n2\n"), do.WriteOutput("odd\n", is_error=True)]
    assert d.seen(do.DropStages) == [do.DropStages(run.run_id)]
    assert len(d.seen(do.ReleaseSlot)) == 2
    assert d.core.graph.executions()[0].metrics["numRecordsIn"] == 5
    assert d.core.graph.executions()[0].operator_metrics == {"map": [5, 5, 0.0, 0.0, 12.5, 0.0]}


def test_what_is_prepared_is_committed_once_behind_all_stages() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    assert not d.core.is_terminal
    _, commit = d.seen(do.StartStageRun)
    (stage,) = commit.stages
    work = json.loads(stage.tasks[0].own or "")
    assert [(row["operator"], row["subtask"], row["committables"]) for row in work] == [
        (OP, 0, [[1, "eA=="]]),
        (OP, 1, [[1, "eA=="]]),
    ]
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    assert len(d.seen(do.StartStageRun)) == 2, "an old answer begins nothing"
    d.did(d.core.cancel("its user wants it"))
    assert d.core.state.name == "RUNNING", "the results are being shown"
    d.did(d.core.stages_failed(commit.run_id, "an executor was lost"))
    assert d.core.state.name == "RUNNING"
    d.did(d.core.timer_fired("commit-again"))
    again = d.seen(do.StartStageRun)[-1]
    assert again.stages == commit.stages
    assert again.run_id not in (run.run_id, commit.run_id)
    d.did(d.core.stages_ended(again.run_id, []))
    assert d.core.state.name == "FINISHED"


def test_tasks_that_have_ended_have_nothing_to_commit_and_begin_again_with_the_others() -> None:
    settings = JobMasterSettings(new_restart_strategy=lambda: FixedDelay(1, 0.0))
    d = Batch(two_by_two(commits=True), settings)
    run = d.begun()
    ended = TaskProgress(0, "SUCCESS"), TaskProgress(1, "SUCCESS")
    for number in (1, 2):
        d.did(d.core.stages_seen(run.run_id, run_look(*ended, vertex=number)))
    assert [d.state(id_) for id_ in d.ids()] == ["FINISHED", "FINISHED", "RUNNING", "RUNNING"]
    d.did(d.core.stages_failed(run.run_id, "Python worker exited unexpectedly"))
    d.did(d.core.timer_fired("restart"))
    again = d.seen(do.StartStageRun)[-1]
    assert (attempts(run), attempts(again)) == ([0, 0], [1, 1])
    for number in (1, 2):
        d.did(d.core.stages_seen(again.run_id, run_look(*ended, vertex=number)))
    d.did(d.core.stages_ended(again.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    commit = d.seen(do.StartStageRun)[-1]
    assert commit.stages[0].id == "commit"
    d.did(d.core.stages_ended(commit.run_id, []))
    assert d.core.state.name == "FINISHED"


def test_a_commit_that_user_code_refuses_ends_the_job_whatever_the_strategy_says() -> None:
    settings = JobMasterSettings(new_restart_strategy=lambda: FixedDelay(5, 0.0))
    d = Batch(two_by_two(commits=True), settings)
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    d.did(d.core.stages_failed(d.seen(do.StartStageRun)[-1].run_id, user_failure("Commit", 0)))
    assert d.core.state.name == "FAILED"


def test_a_users_exception_fails_the_job_with_its_place() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.did(d.core.stages_failed(run.run_id, user_failure(printed=[(STDOUT, "here"), (STDERR, "there")])))
    assert d.core.state.name == "FAILED"
    assert d.seen(do.WriteOutput) == [do.WriteOutput("here"), do.WriteOutput("there", is_error=True)]
    assert len(d.seen(do.StartStageRun)) == 1, "nothing is committed"
    root = d.core.graph.root_failure
    assert root is not None
    assert (root.failure["message"], root.task_name) == ("boom", "V2 (2/2)#0")


@pytest.mark.parametrize("message", [user_failure(), "Python worker exited unexpectedly"])
def test_the_restart_strategy_has_all_stages_run_again(message: str) -> None:
    settings = JobMasterSettings(new_restart_strategy=lambda: FixedDelay(1, 0.0))
    d = Batch(two_by_two(), settings)
    run = d.begun()
    d.did(d.core.stages_failed(run.run_id, message))
    d.did(d.core.timer_fired("restart"))
    assert d.core.state.name == "RUNNING"
    again = d.seen(do.StartStageRun)[-1]
    assert again.run_id != run.run_id
    d.did(d.core.stages_failed(run.run_id, message))
    assert d.core.state.name == "RUNNING", "that was the run before"
    d.did(d.core.stages_failed(again.run_id, message))
    assert d.core.state.name == "FAILED"


def test_cancelling_ends_the_run() -> None:
    d = Batch(two_by_two())
    run = d.begun()
    d.did(d.core.cancel("its user wants it"))
    assert d.core.state.name == "CANCELED"
    assert d.seen(do.DropStages) == [do.DropStages(run.run_id)]
    assert not d.seen(do.CancelSlotTasks)


def test_a_lost_slot_harms_no_stage() -> None:
    d = Batch(two_by_two())
    run = d.begun()
    d.did(d.core.fail_slot(m.FailSlot("tm", "tm-0", "killed")))
    d.did(d.core.taskmanager_heartbeat("tm", m.ExecutionReport({}, {})))
    assert d.core.state.name == "RUNNING"
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks()))
    assert d.core.state.name == "FINISHED"


def test_results_are_given_when_all_has_succeeded_and_the_job_ends_with_them() -> None:
    d = Batch(collecting())
    run = d.begun()
    operator = OP
    assert d.core.give(operator, 0)[0] is None
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({}, *results((2, b"ab"), (1, b"c")))))
    assert d.core.state.name == "RUNNING", "the client has not got them"
    first, _ = d.core.give(operator, 0)
    assert first is not None
    assert (first.count, first.end, base64.b64decode(first.data)) == (2, False, b"ab")
    last, instructions = d.core.give(operator, 2)
    d.did(instructions)
    assert last is not None
    assert (last.count, last.end, base64.b64decode(last.data)) == (1, True, b"c")
    assert d.core.state.name == "FINISHED"
    assert d.core.give(operator, 2)[0] is not None, "the answer may have got lost"


def test_no_results_of_a_failed_job_are_given() -> None:
    d = Batch(collecting())
    run = d.begun()
    d.did(d.core.stages_failed(run.run_id, user_failure("V1", 0)))
    answer, _ = d.core.give(OP, 0)
    assert answer is not None
    assert (answer.count, answer.end, answer.state) == (0, True, "FAILED")


def followed(before: Batch) -> Batch:
    """The JobMaster that follows one that was lost; it has all its slots."""
    after = Batch(before.core.graph.job_graph, takeover=(1, "killed"), may_recover=True)
    after.stored = before.stored
    after.start()
    after.offer(0, 1)
    return after


def test_a_jobmaster_that_follows_commits_what_was_stored_and_runs_nothing_again() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="], [2, "eQ=="]]})))
    commit = d.seen(do.StartStageRun)[-1]
    assert len(d.stored) == 1
    after = followed(d)
    (again,) = after.seen(do.StartStageRun)
    assert json.loads(again.stages[0].tasks[0].own or "") == json.loads(commit.stages[0].tasks[0].own or "")
    assert again.run_id not in (run.run_id, commit.run_id)
    after.did(after.core.cancel("its user wants it"))
    assert after.core.state.name == "RUNNING", "some of it may be visible"
    after.did(after.core.stages_failed(again.run_id, "an executor was lost"))
    after.did(after.core.timer_fired("commit-again"))
    after.did(after.core.stages_ended(after.seen(do.StartStageRun)[-1].run_id, []))
    assert after.core.state.name == "FINISHED"


def test_a_jobmaster_that_follows_before_anything_was_stored_runs_all_stages() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    (again,) = followed(d).seen(do.StartStageRun)
    assert [(stage.id, stage.tasks) for stage in again.stages] == [(stage.id, stage.tasks) for stage in run.stages]
    assert (attempts(run), attempts(again)) == ([0, 0], [1, 1])
    assert again.run_id != run.run_id


def test_nothing_is_committed_before_it_is_stored() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.storage_is_away = True
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    assert len(d.seen(do.StartStageRun)) == 1
    d.clock.advance(2)
    d.did(d.core.timer_fired("checkpoint"))
    assert len(d.seen(do.StartStageRun)) == 1
    d.storage_is_away = False
    d.clock.advance(2)
    d.did(d.core.timer_fired("checkpoint"))
    assert d.seen(do.StartStageRun)[-1].stages[0].id == "commit"
    assert not d.seen(do.SendTriggerCheckpoint), "slots take no part in it"


def test_a_job_that_is_cancelled_before_all_is_stored_commits_nothing() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.storage_is_away = True
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
    d.did(d.core.cancel("its user wants it"))
    assert d.core.state.name == "CANCELED"
    assert len(d.seen(do.StartStageRun)) == 1


def results(*pieces: tuple[int, bytes]) -> tuple[bytes, ...]:
    """What the tasks of the second vertex tell."""
    return b"\0\0\0\0\1", *(bytes((COLLECTED,)) + count.to_bytes(8, "big") + data for count, data in pieces)


def test_a_jobmaster_that_follows_gives_the_results_that_were_stored() -> None:
    d = Batch(collecting())
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({}, *results((2, b"ab"), (1, b"c")))))
    after = followed(d)
    assert not after.seen(do.StartStageRun)
    last, instructions = after.core.give(OP, 2)
    after.did(instructions)
    assert last is not None
    assert (last.count, last.end, base64.b64decode(last.data)) == (1, True, b"c")
    assert after.core.state.name == "FINISHED"


def test_results_of_some_megabytes_outlive_their_jobmaster() -> None:
    assert KEPT_RESULTS >= 64 << 20
    d = Batch(collecting())
    run = d.begun()
    pieces = [(1, bytes((number,)) * (1 << 20)) for number in range(5)]
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({}, *results(*pieces))))
    after = followed(d)
    for number, (_, data) in enumerate(pieces):
        answer, instructions = after.core.give(OP, number)
        after.did(instructions)
        assert answer is not None
        assert base64.b64decode(answer.data) == data
    assert after.core.state.name == "FINISHED"


def test_results_that_were_too_many_to_be_stored_are_lost_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_layout, "KEPT_RESULTS", 100)
    d = Batch(collecting())
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({}, *results((1, bytes(101))))))
    after = followed(d)
    assert after.core.state.name == "FAILED"
    assert "write them to a sink" in after.core.graph.root_failure.failure["message"]  # type: ignore[union-attr]


@pytest.mark.parametrize("commits", [False, True])
def test_a_lost_driver_is_no_failure_of_the_job(commits: bool) -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    if commits:
        d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: [[1, "eA=="]]})))
        run = d.seen(do.StartStageRun)[-1]
    d.did(d.core.stages_lost(run.run_id))
    again = d.seen(do.StartStageRun)[-1]
    assert [(stage.id, stage.tasks) for stage in again.stages] == [(stage.id, stage.tasks) for stage in run.stages]
    if not commits:
        assert (attempts(run), attempts(again)) == ([0, 0], [1, 1])
    assert again.run_id != run.run_id
    assert d.core.state.name == "RUNNING"
    d.did(d.core.stages_lost(run.run_id))
    assert d.seen(do.StartStageRun)[-1] is again, "that was the run before"


def test_a_job_that_ends_one_driver_after_the_other_fails() -> None:
    d = Batch(two_by_two())
    d.begun()
    for _ in range(MOST_DRIVERS):
        d.did(d.core.stages_lost(d.seen(do.StartStageRun)[-1].run_id))
    assert d.core.state.name == "RUNNING"
    d.clock.advance(STEADY_SECONDS)
    for _ in range(MOST_DRIVERS):
        d.did(d.core.stages_lost(d.seen(do.StartStageRun)[-1].run_id))
    assert d.core.state.name == "RUNNING", "runs had lasted"
    d.did(d.core.stages_lost(d.seen(do.StartStageRun)[-1].run_id))
    assert d.core.state.name == "FAILED"


# --- which task reads what


def graph(*edges: tuple[int, int, str, str]) -> JobGraph:
    """Sources 1 (two subtasks) and 2, and a vertex 3 with three; edges: from, to, partitioner, kind of the target."""
    vertices = [vertex(1, 2, splits=["a", "b", "c"]), vertex(2, 1, splits=["d"]), vertex(3, 3)]
    job_edges = []
    for index, (up, down, partitioner, kind) in enumerate(edges):
        job_edges.append(JobEdge(index, vertex_id(up), vertex_id(down), vertex_id(up), index, partitioner))
        info = OperatorInfo(vertex_id(3), "V3", None, kind)
        vertices[2] = replace(vertices[2], operators=(info,))
    graph = JobGraph("ab" * 16, "test", tuple(vertices), tuple(job_edges), BATCH, {"c" * 64: 10})
    graph.validate()
    return graph


def planned(job_graph: JobGraph) -> list[Stage]:
    return list(plan_stages(job_graph, create_enumerator))


def test_splits_are_handed_out_in_turn() -> None:
    first, second, _ = planned(graph((1, 3, "REBALANCE", "map")))
    assert [[split["id"] for split in json.loads(task.own or "")] for task in first.tasks] == [["a", "c"], ["b"]]
    assert [len(json.loads(task.own or "")) for task in second.tasks] == [1]


def test_keyed_inputs_are_read_by_key_groups_and_others_by_subtask() -> None:
    first, second, third = planned(graph((1, 3, "HASH", "keyed_co_process"), (2, 3, "HASH", "keyed_co_process")))
    assert (first.partitions, second.partitions, third.partitions) == (129, 129, 1)
    assert third.reads == (first.id, second.id)
    ranges = [key_group_range(subtask, 3, 128) for subtask in range(3)]
    for task, (low, high) in zip(third.tasks, ranges, strict=True):
        assert task.keyed == ((0, 0, low, high + 1), (1, 1, low, high + 1))
        assert task.plain == ()
    (_, _, plain) = planned(graph((1, 3, "REBALANCE", "map")))
    assert [task.plain for task in plain.tasks] == [((0, 0, i, i + 1),) for i in range(3)]
    (_, _, hashed) = planned(graph((1, 3, "HASH", "map")))
    assert [task.plain[0][2:] for task in hashed.tasks] == [(low, high + 1) for low, high in ranges]


def test_the_broadcast_side_comes_first_and_goes_to_all() -> None:
    first, second, third = planned(
        graph((1, 3, "HASH", "keyed_broadcast_process"), (2, 3, "BROADCAST", "keyed_broadcast_process"))
    )
    assert (first.partitions, second.partitions) == (129, 2)
    assert third.task["inputs"] == [{"input": 1, "keyed": False}, {"input": 0, "keyed": True}]
    for task in third.tasks:
        assert task.plain == ((0, 0, 0, 1),)
        assert task.keyed[0][:2] == (1, 1)


def test_global_goes_to_the_first_subtask_and_edges_lie_one_behind_the_other() -> None:
    first, _, third = planned(graph((1, 3, "GLOBAL", "co_map"), (1, 3, "RESCALE", "co_map")))
    assert first.partitions == 1 + 3 + 1
    assert [(o["base"], o["count"]) for o in first.task["outputs"]] == [(0, 1), (1, 3)]
    assert [task.plain for task in third.tasks] == [
        ((0, 0, 0, 1), (1, 0, 1, 2)),
        ((1, 0, 2, 3),),
        ((1, 0, 3, 4),),
    ]


def test_plans_travel_as_plain_data() -> None:
    for stage in planned(graph((1, 3, "HASH", "reduce"))):
        assert Stage.from_plain(json.loads(json.dumps(stage.to_plain()))).tasks == stage.tasks
    assert StageTaskInput().own is None


def test_what_can_not_be_read_to_its_end_is_refused_by_name() -> None:
    unbounded = two_by_two()
    source = replace(unbounded.vertices[0].source, bounded=False)  # type: ignore[type-var]
    unbounded = replace(unbounded, vertices=(replace(unbounded.vertices[0], source=source), *unbounded.vertices[1:]))
    with pytest.raises(GraphError, match="'V1' is unbounded"):
        planned(unbounded)
    with pytest.raises(GraphError, match="enumerator of its own"):
        planned(with_user_enumerator(two_by_two()))


def test_there_is_no_commit_without_anything_prepared() -> None:
    d = Batch(two_by_two(commits=True))
    run = d.begun()
    d.did(d.core.stages_ended(run.run_id, d.elements_of_tasks({OP: []})))
    assert d.core.state.name == "FINISHED"
    assert len(d.seen(do.StartStageRun)) == 1


def adapting(partitioner: str = "HASH", config: dict[str, str] | None = None, fixed: int = 0) -> JobGraph:
    """A source with one split, and two vertices of parallelism 4 whose number of subtasks nobody has said.

    Args:
        partitioner: between these two.
        config: of the job.
        fixed: number of the vertex of which it was said.
    """
    vertices = [vertex(1, 4, splits=["a"]), vertex(2, 4), vertex(3, 4, commits=True)]
    specs = [replace(spec, adapts=number != fixed) for number, spec in enumerate(vertices, start=1)]
    edges = (("REBALANCE", 1, 2), (partitioner, 2, 3))
    graph = job(*specs)
    return replace(
        graph,
        edges=tuple(
            JobEdge(number, vertex_id(up), vertex_id(down), vertex_id(up), 0, kind)
            for number, (kind, up, down) in enumerate(edges)
        ),
        config={**graph.config, **BATCH, **(config or {})},
    )


AUTO = "execution.batch.adaptive.auto-parallelism"


def test_how_many_tasks_there_may_be_is_planned_and_what_they_are_made_of() -> None:
    graph = adapting(config={f"{AUTO}.avg-data-volume-per-task": "1 kb"})
    source, rebalanced, keyed = plan_stages(graph, create_enumerator)
    assert source.sizing is None
    assert len(source.tasks) == 1, "there is one split"
    assert source.task["parallelism"] == 1
    assert rebalanced.sizing == (1, 4, 1024)
    assert [task.plain for task in rebalanced.tasks] == [((0, 0, n, n + 1),) for n in range(4)]
    assert rebalanced.task["sized"]
    assert keyed.sizing == (1, 4, 1024)
    assert len(keyed.tasks) == 128, "key groups"
    assert keyed.tasks[5].plain == ((0, 0, 5, 6),)
    assert Stage.from_plain(json.loads(json.dumps(keyed.to_plain()))).sizing == keyed.sizing


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (adapting(), [None, (1, 4), (1, 4)]),
        (adapting(config={f"{AUTO}.enabled": "false"}), [None, None, None]),
        (adapting(config={f"{AUTO}.min-parallelism": "3", f"{AUTO}.max-parallelism": "2"}), [None, (2, 2), (2, 2)]),
        (adapting(config={f"{AUTO}.max-parallelism": "100"}), [None, (1, 4), (1, 4)]),
        (adapting(fixed=3), [None, (1, 4), None]),
        (adapting("FORWARD"), [None, (1, 4), (1, 4)]),  # what one subtask sends stays together
        (adapting("GLOBAL"), [None, (1, 4), None]),
    ],
)
def test_which_vertices_may_have_fewer_tasks(graph: JobGraph, expected: list[Any]) -> None:
    stages = plan_stages(graph, create_enumerator)
    assert [stage.sizing and stage.sizing[:2] for stage in stages] == expected
    assert len(stages[0].tasks) == (4 if graph.config.get(f"{AUTO}.enabled") else 1), "it has one split"


def test_subtasks_that_are_not_needed_end_with_the_others() -> None:
    d = Batch(adapting())
    d.start()
    d.offer(0, 1, 2, 3)
    (run,) = d.seen(do.StartStageRun)
    ended = (TaskProgress(0, "SUCCESS", 6),)
    progress = {vertex_id(number): StageProgress(1, 0, 1, 0, 7 + number, ended) for number in (1, 2, 3)}
    d.did(d.core.stages_seen(run.run_id, RunLook("running", "", progress, "http://127.0.0.1:4040")))
    states = [[e.state.name for e in job_vertex.executions()] for job_vertex in d.core.graph.vertices.values()]
    assert states[:2] == [["FINISHED"] * 4] * 2
    assert states[2] == ["RUNNING", "DEPLOYING", "DEPLOYING", "DEPLOYING"], "these may have something to commit"
    shown = archive_of(d.core.graph)["vertices"]
    assert [row["firesteel-tasks"] for row in shown] == [1, 1, 1]
    assert shown[1]["firesteel-spark"] == "http://127.0.0.1:4040/stages/stage/?id=9&attempt=0"
    elements = d.elements_of_tasks({vertex_id(3): [[1, "eA=="]]})
    of_first = [element for element in elements if element[:1] == b"\0" or json.loads(element[1:])["subtask"] == 0]
    d.did(d.core.stages_ended(run.run_id, of_first))
    commit = d.seen(do.StartStageRun)[-1]
    assert commit.run_id != run.run_id
    d.did(d.core.stages_ended(commit.run_id, []))
    assert d.core.state.name == "FINISHED"
    assert "firesteel-spark" not in archive_of(d.core.graph)["vertices"][1], "the page may have gone by then"


def test_how_uneven_subtasks_were_is_shown_when_they_have_ended() -> None:
    d = Batch(two_by_two())
    run = d.begun()
    ended = TaskProgress(0, "SUCCESS", 30), TaskProgress(1, "SUCCESS", 10)
    d.did(d.core.stages_seen(run.run_id, run_look(*ended, vertex=2)))
    assert archive_of(d.core.graph)["vertices"][1]["firesteel-worst"] == {"skew": 50.0}


def test_a_stage_begins_when_its_tasks_run_not_when_all_stages_are_submitted() -> None:
    d = Batch(two_by_two())
    run = d.begun()
    submitted = d.clock.epoch_ms()
    d.clock.advance(7)
    d.did(d.core.stages_seen(run.run_id, run_look(TaskProgress(0, "RUNNING"), vertex=1)))
    first, second = archive_of(d.core.graph)["vertices"]
    assert (first["start-time"], first["duration"]) == (submitted + 7000, 0)
    assert (second["start-time"], second["duration"]) == (-1, -1)
    starts = [row["start-time"] for row in unpacked(first["subtasks"][0])]
    assert starts == [submitted + 7000, -1]
