"""What is remembered of jobs for charts: rings of bounded size, rates of totals."""

from __future__ import annotations

from typing import Any

from firesteel.graph.job_archive import WORST
from firesteel_dispatcher.metric_history import MetricHistory

VERTEX = "1" * 32


def job_archive(
    job: str = "job", vertices: int = 1, worst: dict[str, Any] | None = None, **totals: float
) -> dict[str, Any]:
    metrics = {
        "read-records": 0, "write-records": 0, "read-bytes": 0, "write-bytes": 0, "accumulated-busy-time": 0,
        "accumulated-backpressured-time": 0, "accumulated-idle-time": 0,
        **{name.replace("_", "-"): value for name, value in totals.items()},
    }  # fmt: skip
    ids = [VERTEX, *(f"{i:032}" for i in range(2, vertices + 1))]
    return {
        "jid": job,
        "vertices": [{"id": id_, "parallelism": 2, "metrics": metrics, WORST: worst or {}} for id_ in ids],
        "restarts": {"numRestarts": 1, "uptime": 5},
        "checkpoints": {"metrics": {"lastCheckpointDuration": 30, "lastCheckpointSize": -1}},
    }


def test_totals_become_rates_between_two_moments() -> None:
    history = MetricHistory(5, 10)
    history.record(job_archive(read_records=100), 1000)
    history.record(job_archive(read_records=600, accumulated_busy_time=5000), 6000)
    view = history.of("job", VERTEX)
    assert (view["interval"], view["size"], view["times"]) == (5000, 10, [1000, 6000])
    assert view["series"]["numRecordsInPerSecond"] == [None, 100.0]
    assert view["series"]["busyTimeMsPerSecond"] == [None, 500.0], "the average of two subtasks"


def test_what_is_counted_anew_after_a_restart_is_a_gap() -> None:
    history = MetricHistory(5, 10)
    for at, total in enumerate((100, 200, 50, 150), 1):
        history.record(job_archive(read_records=total), at * 1000)
    assert history.of("job", VERTEX)["series"]["numRecordsInPerSecond"] == [None, 100.0, None, 100.0]


def test_a_ring_keeps_the_newest_in_their_order() -> None:
    history = MetricHistory(5, 3)
    for at in range(1, 8):
        history.record(job_archive(read_records=at * at), at * 1000)
    view = history.of("job", VERTEX)
    assert view["times"] == [5000, 6000, 7000]
    assert view["series"]["numRecordsInPerSecond"] == [9.0, 11.0, 13.0]
    newer = history.of("job", VERTEX, since_ms=5000)
    assert (newer["times"], newer["series"]["numRecordsInPerSecond"]) == ([6000, 7000], [11.0, 13.0])


def test_series_that_come_later_are_empty_before() -> None:
    history = MetricHistory(5, 10)
    history.record(job_archive(), 1000)
    worst = {"busy": {"value": 900, "subtask": 1}, "watermark": {"value": 1500, "subtask": 0}, "pendingRecords": 7}
    history.record(job_archive(worst=worst), 2000)
    series = history.of("job", VERTEX)["series"]
    assert series["maxBusyTimeMsPerSecond"] == [None, 900.0]
    assert series["watermarkLag"] == [None, 500.0]
    assert series["pendingRecords"] == [None, 7.0]


def test_no_watermark_and_the_last_one_are_no_lag() -> None:
    history = MetricHistory(5, 10)
    for at, watermark in enumerate((-(2**63), 2**63 - 1), 1):
        history.record(job_archive(worst={"watermark": {"value": watermark, "subtask": 0}}), at)
    assert "watermarkLag" not in history.of("job", VERTEX)["series"]


def test_series_of_the_job_itself() -> None:
    history = MetricHistory(5, 10)
    history.record(job_archive(), 1000)
    assert history.of("job")["series"] == {"numRestarts": [1.0], "lastCheckpointDuration": [30.0]}


def test_a_job_with_too_many_vertices_is_cut_and_says_so() -> None:
    history = MetricHistory(5, 10, most_series=20)
    for at in (1000, 2000):
        history.record(job_archive(vertices=50), at)
    assert history.of("job", VERTEX)["truncated"]
    assert sum(len(history.of("job", f"{i:032}")["series"]) for i in range(2, 51)) < 20
    small = MetricHistory(5, 10, most_series=20)
    small.record(job_archive(), 1000)
    assert not small.of("job", VERTEX)["truncated"]


def test_the_job_of_which_nothing_was_heard_for_longest_goes_first() -> None:
    history = MetricHistory(5, 10, most_in_all=25)
    for at in (1000, 2000):
        history.record(job_archive("old"), at)
        history.record(job_archive("older"), at)
        history.record(job_archive("old"), at + 500)
    for at in (3000, 4000):
        history.record(job_archive("new"), at)
    assert history.of("older")["times"] == []
    assert history.of("old")["times"]
    assert history.of("new")["times"] == [3000, 4000]


def test_jobs_that_are_forgotten_leave_nothing() -> None:
    history = MetricHistory(5, 10)
    history.record(job_archive("gone"), 1000)
    history.record(job_archive("kept"), 1000)
    history.keep(["kept"])
    assert (history.of("gone")["times"], history.of("kept")["times"]) == ([], [1000])
    assert history.of("never known") == {
        "interval": 5000, "size": 10, "truncated": False, "times": [], "series": {},
    }  # fmt: skip


def test_a_sparkline_is_the_rate_of_the_sources_in_averages() -> None:
    history = MetricHistory(5, 14)
    for at in range(20):  # the ring goes round
        history.record(job_archive(worst={"numRecordsInPerSecond": at}) | {"plan": {"nodes": []}}, at * 1000)
    assert history.sparkline("job") == [8.5, 14.5, 18.5], "moments 6 to 11, 12 to 17, and what there is of the rest"
    assert history.of("job")["series"]["numRecordsInPerSecond"][-1] == 19.0
    assert history.sparkline("other") == []
