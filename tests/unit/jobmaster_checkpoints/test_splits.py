"""Splits over checkpoints and restarts: whatever is lost or late, each record of a split counts once.

The oracle is the sum of what readers hold and what the enumerator will give: every record of every split is in it
exactly once, whenever the job goes on from a checkpoint.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firesteel.checkpoint.metadata import CheckpointMetadata, EnumeratorState, OperatorState
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.checkpoint.subtask_state import OperatorSubtaskState
from firesteel.connectors.enumerators import StaticEnumerator, create_enumerator
from firesteel.core.errors import ProgramError, StateRestoreError
from firesteel.core.ids import VertexId
from firesteel.functions.source import Split
from firesteel.graph.execution_graph import Execution, ExecutionGraph
from firesteel.testing.clock import ManualClock
from firesteel_jobmaster.split_assignments import ALL, Assignments
from firesteel_jobmaster.splits import SplitAssigner
from tests.examples import examples
from tests.unit.jobmaster import jobs

LENGTH = 3
"""Records of a split."""


class Reader:
    """A source subtask: splits with positions, those that have been read are known by their records."""

    def __init__(self, execution: Execution, splits: list[Split]) -> None:
        self.execution = execution
        self.number = self.serial = 0
        self.splits = list(splits)
        self.on_the_way: list[Any] = []
        self.done = False

    def read(self) -> tuple[str, int] | None:
        if not self.splits:
            return None
        split = self.splits[0]
        position = int(split.position or 0)  # type: ignore[arg-type]
        self.splits[0] = split.at(position + 1)
        if position + 1 == LENGTH:
            self.splits.pop(0)
        return split.id, position

    def snapshot(self) -> tuple[int, list[Split], list[tuple[str, int]]]:
        return self.serial, list(self.splits), []


class SplitsOverRestarts(RuleBasedStateMachine):
    """Readers ask, read, acknowledge and die; the sink of each has counted what was read up to the checkpoint."""

    @initialize(
        parallelism=st.integers(1, 3),
        splits=st.integers(0, 12),
        enumerator=st.sampled_from(["static", "subtasks", "hybrid"]),
    )
    def begin(self, parallelism: int, splits: int, enumerator: str) -> None:
        names = [f"s{i}" for i in range(splits)]
        self.graph = jobs.job(jobs.vertex(1, parallelism, splits=names), jobs.vertex(2, 1))
        if enumerator == "subtasks":
            names = [f"subtask-{i}" for i in range(parallelism)]
            vertex = self.graph.vertices[0]
            object.__setattr__(vertex.source, "enumerator", "subtasks")
            object.__setattr__(vertex.source, "config", {})
        elif enumerator == "hybrid":
            vertex = self.graph.vertices[0]
            assert vertex.source is not None
            plain_splits: Any = vertex.source.config["splits"]
            half = len(plain_splits) // 2
            parts = [
                {"name": "static", "config": {"splits": part}} for part in (plain_splits[:half], plain_splits[half:])
            ]
            object.__setattr__(vertex.source, "enumerator", "hybrid")
            object.__setattr__(vertex.source, "config", {"sources": parts})
            names = [f"{int(number >= half)}/{name}" for number, name in enumerate(names)]
        self.names = names
        self.vertex = self.graph.vertices[0]
        self.assigner = SplitAssigner(self.graph, create_enumerator)
        self.readers = [self._reader(i, 0, []) for i in range(parallelism)]
        self.counted: list[Counter[tuple[str, int]]] = [Counter() for _ in range(parallelism)]
        self.pending: dict[int, tuple[int, list[Split], Counter[tuple[str, int]], bool]] = {}
        self.enumerator: EnumeratorState | None = None
        self.serials: dict[int, int] = {}
        self.point: RestorePoint | None = None
        self.committed: list[Counter[tuple[str, int]]] = [Counter() for _ in range(parallelism)]
        self.number = 0

    def _reader(self, subtask: int, attempt: int, splits: list[Split]) -> Reader:
        return Reader(Execution(self.vertex, subtask, attempt, ManualClock()), splits)

    indices = st.integers(0, 2)

    @rule(index=indices, repeat=st.booleans())
    def asks(self, index: int, repeat: bool) -> None:
        reader = self.readers[index % len(self.readers)]
        if reader.done:
            return
        if not repeat or not reader.number:
            reader.number += 1
        answer = self.assigner.answer(reader.execution, reader.number)
        if (
            answer.serial
            and answer.serial not in [g.serial for g in reader.on_the_way]
            and answer.serial > reader.serial
        ):
            reader.on_the_way.append(answer)

    @rule()
    def waiting_readers_are_served(self) -> None:
        for execution, answer in self.assigner.retry():
            reader = self.readers[execution.subtask]
            assert reader.execution is execution
            reader.on_the_way.append(answer)

    @rule(index=indices)
    def splits_arrive(self, index: int) -> None:
        reader = self.readers[index % len(self.readers)]
        if reader.on_the_way:
            answer = reader.on_the_way.pop(0)
            assert answer.serial == reader.serial + 1
            reader.serial = answer.serial
            reader.splits += [Split.from_plain(plain) for plain in answer.splits]
            reader.done = reader.done or answer.no_more

    @rule(index=indices, count=st.integers(1, 5))
    def reads(self, index: int, count: int) -> None:
        subtask = index % len(self.readers)
        for _ in range(count):
            record = self.readers[subtask].read()
            if record is not None:
                self.counted[subtask][record] += 1

    @rule(requests=st.lists(st.tuples(indices, st.booleans(), st.integers(0, 4)), max_size=8))
    def readers_work(self, requests: list[tuple[int, bool, int]]) -> None:
        """Readers ask; perhaps they get it, and read."""
        for index, gets, count in requests:
            self.asks(index, False)
            if gets:
                self.splits_arrive(index)
                self.reads(index, count)

    @rule(order=st.permutations(range(3)), between=st.lists(st.tuples(indices, st.booleans(), st.integers(0, 4))))
    def a_whole_checkpoint(self, order: list[int], between: list[tuple[int, bool, int]]) -> None:
        """Barriers come in some order, while readers work."""
        for index in order:
            self.barrier_comes(index)
            self.readers_work(between)
        if self.enumerator is not None:
            self.checkpoint_ends(True)

    @rule(index=indices)
    def barrier_comes(self, index: int) -> None:
        """A reader acknowledges the checkpoint under way."""
        subtask = index % len(self.readers)
        reader = self.readers[subtask]
        if subtask in self.pending or self.enumerator is not None:
            return
        finished = reader.done and not reader.splits and not reader.on_the_way
        self.pending[subtask] = (reader.serial, list(reader.splits), self.counted[subtask].copy(), finished)
        if len(self.pending) == len(self.readers):
            self.serials = {i: ALL if done else serial for i, (serial, _, _, done) in self.pending.items()}
            self.enumerator = self.assigner.snapshot(self.vertex.id, self.serials)

    @precondition(lambda self: self.enumerator is not None)
    @rule(completes=st.booleans())
    def checkpoint_ends(self, completes: bool) -> None:
        assert self.enumerator is not None
        if completes:
            self.number += 1
            subtasks = {
                i: OperatorSubtaskState(splits=tuple(s.to_plain() for s in splits))
                for i, (_, splits, _, _) in self.pending.items()
            }
            operator = OperatorState(
                self.vertex.id, "V1", None, len(self.readers), 128, subtasks, enumerator=self.enumerator
            )
            metadata = CheckpointMetadata(self.number, "j", 0, (operator,))
            metadata = CheckpointMetadata.from_bytes(metadata.to_bytes(), "m")
            self.point = RestorePoint(metadata, "chk", self.graph, False)
            self.committed = [self.pending[i][2] for i in range(len(self.readers))]
            self.assigner.completed(self.vertex.id, self.serials)
        self.pending, self.enumerator = {}, None

    @rule(
        some=st.sets(indices, min_size=1), how=st.sampled_from(["some", "some", "all", "anew", "none", "none", "none"])
    )
    def readers_die(self, some: set[int], how: str) -> None:
        """Some readers are restarted, or all, or the JobMaster is."""
        if how == "none":
            return
        all_of_them, anew = how == "all", how == "anew"
        dead = set(range(len(self.readers))) if all_of_them or anew else {i % len(self.readers) for i in some}
        self.pending, self.enumerator = {}, None
        if anew:
            self.assigner = SplitAssigner(self.graph, create_enumerator)
        for subtask in dead:
            before = self.readers[subtask].execution
            splits: list[Split] = []
            if self.point is not None:
                restored = self.point.task(before).operators.get(self.vertex.id)
                splits = [Split.from_plain(plain) for plain in restored.splits] if restored else []
            self.readers[subtask] = self._reader(subtask, before.attempt + 1, splits)
            self.counted[subtask] = self.committed[subtask].copy() if self.point else Counter()
        if anew and self.point is not None:
            self.assigner.begin(self.point)
        elif not anew:
            self.assigner.restart([self.readers[i].execution for i in sorted(dead)], self.point)

    def teardown(self) -> None:
        """All that is left is read: each record has counted once."""
        for _ in range(40):
            for index in range(len(self.readers)):
                self.asks(index, False)
                while self.readers[index].on_the_way:
                    self.splits_arrive(index)
                self.reads(index, 5)
        total: Counter[tuple[str, int]] = sum(self.counted, Counter())
        expected = Counter({(name, position): 1 for name in self.names for position in range(LENGTH)})
        assert total == expected, f"lost: {expected - total}, doubled: {total - expected}"

    @invariant()
    def nothing_is_doubled(self) -> None:
        total: Counter[tuple[str, int]] = sum(self.counted, Counter())
        assert all(count == 1 for count in total.values()), f"doubled: {total - Counter(set(total))}"


TestSplitsOverRestarts = SplitsOverRestarts.TestCase
TestSplitsOverRestarts.settings = settings(max_examples=examples(80), stateful_step_count=20, deadline=None)


def test_bookkeeping_ends_with_the_checkpoint_that_has_the_splits() -> None:
    assignments = Assignments()
    a, b, c = (Split(name, {}) for name in "abc")
    assignments.given(0, 1, [a])
    assignments.given(0, 2, [b])
    assignments.given(1, 1, [c])
    assignments.given(1, 2, [])
    assert assignments.not_in_state({0: 1, 1: 0}) == [(0, b), (1, c)]
    assignments.completed({0: 1, 1: 0})
    assert len(assignments) == 2
    assert assignments.take_back([0]) == [b]
    assignments.completed({1: ALL})
    assert len(assignments) == 0


class _Later(StaticEnumerator):
    """Has nothing yet."""

    @property
    def exhausted(self) -> bool:
        return False


def test_nothing_is_left_of_attempts_before_the_last_one() -> None:
    """The last one may have been given up before it ran."""
    graph = ExecutionGraph(jobs.job(jobs.vertex(1, 1, splits=[])), ManualClock())
    assigner = SplitAssigner(graph.job_graph, lambda name, config: _Later({"splits": []}))
    (first,) = graph.executions()
    assert assigner.answer(first, 1).splits == ()
    assert assigner.someone_waits
    assigner.restart([Execution(first.vertex, 0, first.attempt + 2, ManualClock())])
    assert not assigner.someone_waits


def test_another_enumerator_can_not_go_on() -> None:
    graph = jobs.job(jobs.vertex(1, 1, splits=["a"]))
    operator = OperatorState(jobs.vertex_id(1), "V1", None, 1, 128, enumerator=EnumeratorState("numbers", None))
    point = RestorePoint(CheckpointMetadata(1, "j", 0, (operator,)), "chk", graph, False)
    with pytest.raises(StateRestoreError, match="taken with the enumerator 'numbers', and it has 'static' now"):
        SplitAssigner(graph, create_enumerator).begin(point)


def test_files_that_were_read_may_be_gone_when_the_job_goes_on(tmp_path: Path) -> None:
    graph = jobs.job(jobs.vertex(1, 1, splits=[]))
    source: Any = graph.vertices[0].source
    object.__setattr__(source, "enumerator", "files")
    object.__setattr__(source, "config", {"paths": [str(tmp_path / "a"), str(tmp_path / "b")]})
    left = {"path": str(tmp_path / "b"), "start": 0, "end": 1}
    state = EnumeratorState("files", [Split("b", left).to_plain()])
    operator = OperatorState(jobs.vertex_id(1), "V1", None, 1, 128, enumerator=state)
    point = RestorePoint(CheckpointMetadata(1, "j", 0, (operator,)), "chk", graph, False)
    assigner = SplitAssigner(graph, create_enumerator)
    with pytest.raises(ProgramError, match=r"source 'V1': .*/a' does not exist"):
        assigner.begin(None)
    assigner.begin(point)
    (execution,) = ExecutionGraph(graph, ManualClock()).vertices[VertexId(graph.vertices[0].id)].executions()
    assigner.restart([execution], point)
    assert [split["data"]["path"] for split in assigner.answer(execution, 1).splits] == [str(tmp_path / "b")]
    with pytest.raises(ProgramError, match=r"source 'V1': .*/a' does not exist"):
        assigner.restart([execution], None)
