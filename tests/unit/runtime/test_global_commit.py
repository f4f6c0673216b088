"""Sinks with one committer in whole jobs that crash at any moment: each record is visible once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firesteel.datastream import StreamExecutionEnvironment
from firesteel.functions.global_commit import GlobalCommitSink
from firesteel.functions.two_phase import CommitResult, Committable, Committer, TwoPhaseWriter
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.records.batch import MAX_WATERMARK, Barrier, Batch, Watermark
from firesteel.runtime.task import task as task_module
from tests.examples import examples
from tests.unit.runtime.mini_job import SHELVES, Checkpoint, MiniJob, Shelf, ShelfSink, Vertex
from tests.unit.runtime.support import spec
from tests.unit.runtime.test_checkpoints import Bench
from tests.unit.runtime.test_exactly_once import operator, random_splits, source


class Together(ShelfSink):
    """Notes the pages of each call of its committer."""

    version = 7
    commits_globally = True

    def create_writer(self, context: Any) -> TwoPhaseWriter[Any]:
        return Ending(super().create_writer(context))

    def create_committer(self, context: Any) -> Committer:
        return Noting(super().create_committer(context))


class Ending(TwoPhaseWriter[Any]):
    """Does not want to be asked behind its end."""

    def __init__(self, writer: TwoPhaseWriter[Any]) -> None:
        self.writer = writer
        self.ended = False

    def write(self, values: Any, timestamps: Any) -> None:
        self.writer.write(values, timestamps)

    def prepare_commit(self, *, end_of_input: bool) -> Sequence[bytes]:
        assert not self.ended
        self.ended = end_of_input
        return self.writer.prepare_commit(end_of_input=end_of_input)

    def abort(self) -> None:
        assert not self.ended


class Noting(Committer):
    calls: list[list[bytes]] = []
    instances = 0

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        Noting.instances += 1

    def commit(self, committables: Sequence[Committable]) -> Sequence[CommitResult]:
        assert {committable.version for committable in committables} == {7}
        Noting.calls.append([committable.data for committable in committables])
        return self.committer.commit(committables)


@pytest.fixture(autouse=True)
def _one_batch_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)


def vertices(p: Sequence[int]) -> list[Vertex]:
    sink = GlobalCommitSink(Together("shelf"))
    (writers,) = sink.stages()
    return [
        Vertex("source", source("source"), p[0]),
        Vertex("writers", lambda: [operator("writers", K.SINK_STAGE, writers)], p[1], [("source", P.REBALANCE, None)]),
        Vertex("sink", lambda: [operator("sink", K.SINK, sink)], 1, [("writers", P.GLOBAL, None)]),
    ]


@given(seed=st.integers(0, 2**32), attempts=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1,
       max_size=4))  # fmt: skip
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow,
          HealthCheck.function_scoped_fixture])  # fmt: skip
def test_each_record_is_visible_once(seed: int, attempts: list[tuple[int, int]]) -> None:
    chance = random.Random(seed)
    records = random_splits(chance)
    shelf = SHELVES["shelf"] = Shelf()
    restore: Checkpoint | None = None
    number = 0
    for attempt, degrees in enumerate(attempts):
        job = MiniJob(vertices(degrees), {"source": records}, chance.randrange(1 << 30), restore,
                      first_checkpoint=number + 1, attempt=attempt)  # fmt: skip
        try:
            if attempt == len(attempts) - 1:
                job.to_end()
            else:
                job.live_for_a_while(chance)
            restore, number = job.completed, job.number
        finally:
            job.crash()
    expected = Counter(tuple(record) for split in records for record in split)
    assert Counter(map(tuple, shelf.visible)) == expected


def test_one_call_for_all_subtasks() -> None:
    SHELVES["shelf"] = Shelf()
    Noting.calls, Noting.instances = [], 0
    job = MiniJob(vertices((3, 3)), {"source": [[(n, 1)] for n in range(9)]}, 1)
    try:
        job.to_end()
    finally:
        job.crash()
    assert Noting.instances == 1
    assert max(map(len, Noting.calls)) == 3, "of each writer one"


@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_that_overtakes_leaves_no_committables_behind(seed: int) -> None:
    """They belong to the checkpoint at whose barrier they were prepared: it commits all of them, in one call."""
    shelf = SHELVES["shelf"] = Shelf()
    Noting.calls, Noting.instances = [], 0
    records = [[(n, 1) for n in range(first, 600, 3)] for first in range(3)]
    job = MiniJob(vertices((3, 3)), {"source": records}, seed, options={"unaligned": True, "aligned_ms": 0})
    try:
        for _ in range(4):
            number = job.trigger()
            for _ in range(20_000):
                job.steps(1)
                if job.completed is not None and job.completed.number == number:
                    break
            assert job.completed is not None
            assert job.completed.number == number
            sink = [state for (name, _), state in job.completed.states.items() if name == "sink"]
            assert not any(operator.in_flight for state in sink for operator in state.operators.values())
        job.to_end()
    finally:
        job.crash()
    assert {len(call) for call in Noting.calls} <= {1, 2, 3}, "of each writer one at most"
    assert Counter(map(tuple, shelf.visible)) == Counter(record for split in records for record in split)


def test_the_graph_has_writers_as_asked_for_and_one_committer() -> None:
    environment = StreamExecutionEnvironment.get_execution_environment()
    stream = environment.from_collection([1]).rebalance()
    stream.sink_to(Together("shelf")).set_parallelism(3).name("shelf").uid("shelf")
    plan = json.loads(environment.get_execution_plan())
    assert [(node["type"], node["parallelism"]) for node in plan["nodes"]][1:] == [
        ("shelf: Writers", 3), ("Sink: shelf", 1),
    ]  # fmt: skip


def test_records_behind_the_last_watermark_are_shown_too() -> None:
    shelf = SHELVES["shelf"] = Shelf()
    (writers,) = GlobalCommitSink(ShelfSink("shelf")).stages()
    bench = Bench(spec(K.SINK_STAGE, writers))
    try:
        bench.give(Batch([1]), Watermark(MAX_WATERMARK))
        bench.give(Batch([2]), Barrier(1, 0))
        assert list(bench.reports.acknowledged) == [1]
        sent = [bytes(wrapped[4:]) for wrapped in bench.output.values]
        assert Counter(record for page in sent for record in shelf.pages[page]) == Counter([1, 1, 2, 2])
    finally:
        bench.task.cancel()
        bench.loop.close()
