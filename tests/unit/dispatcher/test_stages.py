"""How far the stages of a batch job are, and what can be said of the time that is left."""

from __future__ import annotations

from typing import Any

from firesteel.graph.execution_graph import ExecutionGraph
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.job_archive import STAGE_WORK, archive_of
from firesteel.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from firesteel.rest import types as t
from firesteel.rest.stages import stages
from firesteel.rest.views import job_details

READ, SUM = "1" * 32, "2" * 32


class _Clock:
    now_ms = 1_000_000

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def epoch_ms(self) -> int:
        return self.now_ms


class World:
    """A stage that reads and one with four tasks that reads from it; time goes on by ``wait``."""

    def __init__(self, strategy: str = "HASH") -> None:
        vertices = tuple(
            JobVertex(id_, name, 4, 128, "default", "a" * 64, (OperatorInfo(id_, name, None, "map"),))
            for id_, name in ((READ, "read"), (SUM, "sum"))
        )
        edges = (JobEdge(0, READ, SUM, READ, 0, strategy),)
        config = {"execution.runtime-mode": "BATCH"}
        self.clock = _Clock()
        self.graph = ExecutionGraph(JobGraph("0" * 32, "j", vertices, edges, config=config), self.clock)
        self.readers, self.sums = (vertex.executions() for vertex in self.graph.vertices.values())
        for execution in self.graph.executions():
            execution.machine.move(ExecutionState.SCHEDULED, "test")
            execution.machine.move(ExecutionState.DEPLOYING, "test")

    def read_all(self, written: int) -> None:
        """The first stage ends, each of its tasks with so many bytes."""
        for execution in self.readers:
            execution.report(ExecutionState.RUNNING, "test")
            execution.update_metrics({"numBytesOut": written}, final=True)
            execution.report(ExecutionState.FINISHED, "test")

    def begin(self, subtask: int, size: int) -> None:
        self.sums[subtask].report(ExecutionState.RUNNING, "test")
        self.sums[subtask].update_metrics({"numBytesIn": size})

    def end(self, subtask: int) -> None:
        self.sums[subtask].report(ExecutionState.FINISHED, "test")

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms

    def stage(self, vertex_id: str = SUM) -> t.StageInfo:
        return stages(archive_of(self.graph))[vertex_id]


def test_a_stage_that_waits_and_one_that_is_done_need_no_estimate() -> None:
    world = World()
    waiting = {"tasks-done": 0, "tasks": 4, "spilled-bytes": 0, "shuffled-bytes": 0}
    assert (world.stage(READ), world.stage(SUM)) == (waiting, waiting)
    world.read_all(100)
    assert world.stage(READ) == waiting | {"tasks-done": 4, "shuffled-bytes": 400, "percent": 100.0}


def test_tasks_that_read_before_they_work_tell_nothing_until_one_is_done() -> None:
    world = World()
    world.read_all(100)
    for subtask in range(2):
        world.begin(subtask, 100)
    world.wait(10_000)
    assert not {"percent", "left-ms"} & world.stage().keys(), "all was read at once: that is no progress"
    world.end(0)  # 100 bytes in 10 s
    assert world.stage()["percent"] == 50.0, "the other one has had the same time"
    assert world.stage()["left-ms"] == 20_000, "two tasks of 10 s, one after the other in the slot that works"
    world.begin(2, 100)
    world.wait(4_000)
    assert world.stage()["percent"] == 60.0
    assert world.stage()["left-ms"] == 8_000, "6 s of the task that runs and 10 s of the last one, in two slots"
    world.end(1)
    world.begin(3, 100)
    world.wait(60_000)
    shown = world.stage()
    assert "left-ms" not in shown, "they take longer than they should, and nobody knows how long"
    assert shown["percent"] == 99.9


def test_tasks_that_work_on_what_they_read_have_a_rate_at_once() -> None:
    world = World("REBALANCE")
    world.read_all(20 << 20)
    for subtask in range(4):
        world.begin(subtask, 5 << 20)
    assert "left-ms" not in world.stage(), "a moment is no rate"
    for subtask in range(4):
        world.begin(subtask, 1 << 20)
    world.wait(2_000)
    assert not {"percent", "left-ms"} & world.stage().keys(), "most of it may be what they have read ahead"
    for subtask in range(4):
        world.begin(subtask, 5 << 20)
    assert (world.stage()["percent"], world.stage()["left-ms"]) == (25.0, 6_000)


def test_what_several_readers_share_or_a_source_reads_is_of_unknown_size() -> None:
    world = World("BROADCAST")
    world.read_all(100)
    world.begin(0, 400)
    world.wait(5_000)
    world.end(0)
    assert world.stage()["percent"] == 25.0, "tasks that are done of all"
    assert "left-ms" not in world.stage()


def test_bytes_that_did_not_fit_into_memory_are_summed_up() -> None:
    world = World()
    world.read_all(100)
    for subtask, spilled in enumerate((5, 7)):
        world.begin(subtask, 100)
        world.sums[subtask].update_metrics({"numBytesSpilled": spilled})
    assert world.stage()["spilled-bytes"] == 12


def test_details_have_stages_of_batch_jobs_only() -> None:
    archive: dict[str, Any] = archive_of(World().graph)
    assert all("firesteel-stage" in vertex for vertex in job_details(archive)["vertices"])
    assert not any(STAGE_WORK in vertex for vertex in job_details(archive)["vertices"]), (
        "the figures are not for people"
    )
    streaming = {**archive, "job-type": "STREAMING"}
    assert not any("firesteel-stage" in vertex for vertex in job_details(streaming)["vertices"])
