"""Job graphs for tests of the JobMaster, and a core with a shorthand for its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from firesteel.graph.job_graph import USER_ENUMERATOR, JobEdge, JobGraph, JobVertex, OperatorInfo, SourceInfo
from firesteel.protocol import messages as m
from firesteel.protocol.deployment import TaskFailure
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.settings import JobMasterSettings

JOB = "ab" * 16
T = TypeVar("T")


def vertex_id(number: int) -> str:
    return f"{number:032x}"


def vertex(
    number: int,
    parallelism: int,
    *,
    group: str = "default",
    splits: Sequence[str] | None = None,
    commits: bool = False,
    collects: str | None = None,
) -> JobVertex:
    id_ = vertex_id(number)
    source = None
    if splits is not None:
        plain = [{"id": s, "data": {}} for s in splits]
        source = SourceInfo(id_, "static", {"splits": plain}, bounded=True)
    name = f"V{number}"
    info = (OperatorInfo(id_, name, None, "map"),)
    return JobVertex(id_, name, parallelism, max(128, parallelism), group, "c" * 64, info, source, commits, collects)


def with_user_enumerator(graph: JobGraph) -> JobGraph:
    """The first vertex, a source, gets an enumerator of a user: the vertex 9, in front of it."""
    source = graph.vertices[0]
    assert source.source is not None
    source_spec = replace(source.source, enumerator=USER_ENUMERATOR, config={}, coordinator=vertex_id(9))
    info = (OperatorInfo(vertex_id(9), "V9", None, "enumerator"),)
    enumerator = JobVertex(vertex_id(9), "V9", 1, 1, "default", "c" * 64, info, enumerates=source.id)
    graph = replace(graph, vertices=(enumerator, replace(source, source=source_spec), *graph.vertices[1:]))
    graph.validate()
    return graph


def job(*vertices: JobVertex, partitioner: str = "REBALANCE", config: dict[str, str] | None = None) -> JobGraph:
    """The vertices in a row."""
    edges = tuple(
        JobEdge(i, a.id, b.id, a.operators[-1].id, 0, partitioner) for i, (a, b) in enumerate(pairwise(vertices))
    )
    graph = JobGraph(JOB, "test job", vertices, edges, config or {}, {"c" * 64: 10})
    graph.validate()
    return graph


def two_by_two(**sink: Any) -> JobGraph:
    return job(vertex(1, 2, splits=["a", "b", "c"]), vertex(2, 2, **sink))


def tasks_of(submit: do.SubmitSlot) -> list[str]:
    return [task.execution_id for task in submit.deployment.tasks]


class Driver:
    """A core, its clock and everything it told the shell."""

    def __init__(self, graph: JobGraph, settings: JobMasterSettings | None = None, **arguments: Any) -> None:
        self.clock = ManualClock()
        self.core = JobMasterCore(graph, settings or JobMasterSettings(), self.clock, **arguments)
        self.core.validates = True
        self.all: list[do.Instruction] = []

    def did(self, instructions: list[do.Instruction]) -> list[do.Instruction]:
        self.all += instructions
        return instructions

    def seen(self, kind: type[T]) -> list[T]:
        return [i for i in self.all if isinstance(i, kind)]

    def start(self) -> None:
        self.did(self.core.start())
        self.did(self.core.resourcemanager_connected())

    def offer(self, *indices: int, tm: str = "tm", pid: int = 100) -> tuple[str, ...]:
        slots = tuple(m.SlotOffer(i, f"{tm}-{i}", {"unix": f"/run/{tm}-{i}"}, pid + i) for i in indices)
        accepted, instructions = self.core.offer_slots(m.OfferSlots(tm, f"http://{tm}:1", slots))
        self.did(instructions)
        return accepted

    def deployed(self, slots: int = 2) -> None:
        self.start()
        self.offer(*range(slots))
        for submit in self.seen(do.SubmitSlot):
            self.did(self.core.tasks_submitted(tasks_of(submit)))

    def running(self, slots: int = 2) -> None:
        self.deployed(slots)
        for id_ in self.ids():
            self.report(id_, "INITIALIZING")
            self.report(id_, "RUNNING")

    def ids(self) -> list[str]:
        return [e.id for e in self.core.graph.executions()]

    def state(self, id_: str) -> str:
        execution = self.core.graph.execution(id_)
        assert execution is not None
        return execution.state.value

    def report(
        self, id_: str, state: str, error: dict[str, Any] | None = None, tm: str = "tm", **metrics: int
    ) -> list[do.Instruction]:
        update = m.TaskStateUpdate(id_, state, 0, error, metrics or None)
        return self.did(self.core.update_task_states(m.UpdateTaskStates(tm, (update,))))

    def finish_cancelled(self, tm: str = "tm") -> None:
        for id_ in self.ids():
            if self.state(id_) == "CANCELING":
                self.report(id_, "CANCELED", tm=tm)


def failure(kind: str = "user", message: str = "boom") -> dict[str, Any]:
    return TaskFailure(kind, "builtins.ValueError", message, "Traceback ...").to_plain()
