"""Latency markers: from sources through the channels of a job, among the records, and what is made of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firesteel.core.latency_histogram import MOST_MS, LatencyHistogram, bucket_of, upper_ms
from firesteel.functions.metrics import LATENCIES
from firesteel.graph.latencies import Latencies, VertexLatencies, latencies_in
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.records.batch import Batch, LatencyMarker
from firesteel.runtime.task.latencies import LatencyTracker
from tests.examples import examples
from tests.unit.runtime.mini_job import MiniJob, Vertex
from tests.unit.runtime.support import FakeInput
from tests.unit.runtime.test_exactly_once import key_of, operator, source
from tests.unit.runtime.test_task import TWO, Bench, bench_of, forward


@given(st.integers(min_value=0, max_value=MOST_MS - 1))
@settings(max_examples=examples(200))
def test_a_bucket_holds_latencies_that_differ_by_a_sixteenth_at_most(ms: int) -> None:
    upper = upper_ms(bucket_of(ms))
    assert ms <= upper <= ms + ms // 16
    assert bucket_of(upper) == bucket_of(ms)
    assert bucket_of(upper + 1) == bucket_of(ms) + 1


def test_histograms_add_up_and_clocks_that_differ_count_as_zero() -> None:
    subtasks = [LatencyHistogram([(bucket_of(ms), 1) for ms in range(first, 1000, 2)]) for first in (0, 1)]
    whole = LatencyHistogram(subtasks[0].buckets())
    whole.add(subtasks[1].buckets())
    assert whole.total == 1000
    assert [whole.percentile(share) for share in (0.5, 0.99, 1)] == pytest.approx([500, 990, 1000], rel=1 / 16)
    assert LatencyHistogram().percentile(0.99) == 0
    assert bucket_of(-7) == 0


def _tracked(*inputs: FakeInput) -> tuple[Bench, LatencyTracker]:
    bench = bench_of(forward(*TWO), *inputs)
    tracker = LatencyTracker(bench.plan.outputs(), bench.clock, 1.0, 2, "v", 0)
    bench.task._latencies = tracker
    return bench, tracker


def test_a_marker_passes_on_behind_the_records_in_front_of_it() -> None:
    channel = FakeInput()
    bench, tracker = _tracked(channel)
    bench.task.start()
    sent = bench.clock.epoch_ms() - 30
    channel.give(Batch(["a", "b"]), LatencyMarker("s", 3, sent), Batch(["c"]))
    bench.run()
    assert bench.output.elements == [(2, LatencyMarker("s", 3, sent))]
    assert tracker.rows() == [{"source": "s", "markers": 1, "buckets": [(30, 1)]}]
    assert bench.task.metrics()[LATENCIES] == tracker.rows()


def test_sources_send_markers_which_come_to_every_operator_with_the_time_that_records_waited() -> None:
    def same(value: Any) -> Any:
        return value

    vertices = [
        Vertex("source", source("source"), 2),
        Vertex("keyed", lambda: [operator("same", K.MAP, same)], 2, [("source", P.HASH, key_of)]),
        Vertex("sink", lambda: [operator("end", K.MAP, same)], 1, [("keyed", P.REBALANCE, None)]),
    ]
    splits = {"source": [[(key % 7, key) for key in range(3000)] for _ in range(2)]}
    job = MiniJob(vertices, splits, 1, latency_interval=1.0)
    try:
        for _ in range(40):
            job.steps(3)
            job.clock.now += 0.25
        rows = {key: task.metrics()[LATENCIES] for key, task in job.tasks.items()}
    finally:
        job.crash()
    (at_sink,) = rows["sink", 0]
    assert at_sink["source"] == "source"
    assert 10 <= at_sink["markers"] <= 20, "two sources, ten seconds"
    assert LatencyHistogram(at_sink["buckets"]).percentile(0.5) > 0
    for sender in (0, 1):
        assert 5 <= rows["source", sender][0]["markers"] <= 10
    keyed = [row for subtask in (0, 1) for row in rows["keyed", subtask]]
    assert sum(row["markers"] for row in keyed) >= at_sink["markers"], "one subtask gets each marker"


def test_only_the_latest_latencies_count() -> None:
    channel = FakeInput()
    bench, tracker = _tracked(channel)
    bench.task.start()
    now = bench.clock.epoch_ms()
    channel.give(*(LatencyMarker("s", 0, now - ms) for ms in (1, 2, 3)))
    bench.run()
    assert tracker.rows() == [{"source": "s", "markers": 3, "buckets": [(2, 1), (3, 1)]}]


def test_a_task_of_a_job_without_markers_reports_nothing_of_them() -> None:
    channel = FakeInput()
    bench = bench_of(forward(*TWO), channel)
    bench.task.start()
    channel.give(LatencyMarker("s", 0, 0), Batch(["a"]))
    bench.run()
    assert bench.output.elements == []
    assert LATENCIES not in bench.task.metrics()
    assert len(bench.output.batches) == 1


def test_reports_of_slots_are_checked_and_added_up() -> None:
    row = {"source": "s", "markers": 5, "buckets": [[30, 2], [31, 1]]}
    malformed: list[Any] = [None, 7, [1], [{**row, "source": 1}], [{**row, "markers": -1}], [{**row, "buckets": [[1]]}],
        [{**row, "buckets": [[1, True]]}], [{**row, "buckets": [[10**9, 1]]}], [{**row, "buckets": "ab"}]]  # fmt: skip
    assert [latencies_in(report) for report in malformed] == [()] * len(malformed)
    rows = latencies_in([row] * 200)
    assert len(rows) == 100
    assert rows[0] == Latencies("s", 5, ((30, 2), (31, 1)))
    sums = VertexLatencies()
    for _ in range(2):
        sums.add(rows[:1])
    assert sums.shown() == [{"source": "s", "markers": 10, "buckets": [[30, 4], [31, 2]]}]
