"""Who holds event time back, in words, from what tasks report."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.graph.event_time import VertexEventTime, progress_in
from firesteel.rest.watermark_views import watermark_holds

NONE = -(2**63)
NOON = 1_795_000_000_000
ROW = {"members": 2, "idle": 0, "ended": 0}


def channel(source: str, subtask: int, watermark: int, ahead: int, still_ms: int, number: int = 1) -> dict[str, Any]:
    of = {"source": source, "subtask": subtask, "still_ms": still_ms}
    return {**ROW, "input": number, "watermark": watermark, "ahead": ahead, **of}


def split(name: str, watermark: int, silent_ms: int, **more: Any) -> dict[str, Any]:
    of = {"watermark": watermark, "ahead": watermark, "split": name, "still_ms": 0, "silent_ms": silent_ms}
    return {**ROW, "members": 1, "input": 0, **of, **more}


def job(**vertices: tuple[list[str], int, list[dict[str, Any]]]) -> dict[str, Any]:
    """A job: name of the vertex -> names of those in front, the slowest subtask, and its inputs."""
    return {
        "vertices": [
            {
                "id": name, "name": name if front else f"Source: {name} -> map", "parallelism": 4,
                **({"firesteel-event-time": {"subtask": subtask, "inputs": rows}} if rows else {}),
            }
            for name, (front, subtask, rows) in vertices.items()
        ],
        "plan": {
            "nodes": [{"id": name, "inputs": [{"id": i} for i in front]} for name, (front, _, _) in vertices.items()]
        },
    }  # fmt: skip


def texts(archive: dict[str, Any]) -> list[str]:
    return [hold["text"] for hold in watermark_holds(archive)]


ADVICE = "(WatermarkStrategy.with_idleness() leaves out inputs without records)"


def test_the_source_that_holds_a_window_back_is_named_through_a_vertex_in_between() -> None:
    archive = job(
        clicks=([], 2, [split("p7", NOON, 180_000)]),
        users=([], 0, [split("p1", NOON + 240_000, 100)]),
        parse=(["clicks"], 1, [channel("clicks", 2, NOON, NOON, 170_000)]),
        window=(
            ["parse", "users"], 3,
            [
                channel("parse", 1, NOON, NOON, 170_000),
                channel("users", 0, NOON + 240_000, NOON + 240_000, 0, 2),
            ],
        ),
    )  # fmt: skip
    assert texts(archive) == [
        "window waits for source 'clicks', subtask 3/4, split 'p7': its watermark is 4 min behind the others, and has "
        f"not moved for 2 min 50 s, no records for 3 min {ADVICE}."
    ]
    (hold,) = watermark_holds(archive)
    assert (hold["vertex"], hold["subtask"], hold["cause"], hold["causeSubtask"]) == ("window", 3, "clicks", 2)


def test_an_input_that_never_had_a_record() -> None:
    archive = job(
        clicks=([], 0, [split("p7", NONE, -1, still_ms=50_000)]),
        window=(["clicks"], 3, [channel("clicks", 0, NONE, NOON, 50_000)]),
    )
    assert texts(archive) == [
        "window waits for source 'clicks', subtask 1/4, split 'p7': it has sent no watermark for 50.0 s, no records "
        f"yet {ADVICE}."
    ]


def test_a_source_without_splits_and_one_without_a_strategy() -> None:
    empty = {**ROW, "members": 0, "input": 0, "watermark": NONE, "ahead": NONE, "still_ms": 50_000}
    archive = job(
        clicks=([], 1, [empty]), window=(["clicks"], 3, [channel("clicks", 1, NONE, NOON, 50_000)]),
    )  # fmt: skip
    assert texts(archive) == [
        "window waits for source 'clicks', subtask 2/4: it has sent no watermark for 50.0 s; it has no split to read "
        + ADVICE
        + "."
    ]
    archive = job(clicks=([], 0, []), window=(["clicks"], 3, [channel("clicks", 1, NONE, NOON, 50_000)]))
    assert texts(archive) == [
        "window waits for source 'clicks', subtask 2/4: it has sent no watermark for 50.0 s; it has no watermark "
        "strategy, so that event time never advances there."
    ]


def test_splits_of_a_source_wait_for_each_other_and_nobody_is_told_twice() -> None:
    archive = job(
        clicks=([], 1, [split("p7", NOON, 70_000, ahead=NOON + 90_000, still_ms=70_000, idleness=True)]),
        window=(["clicks"], 3, [channel("clicks", 1, NOON, NOON + 90_000, 70_000)]),
        sums=(["window"], 0, [channel("window", 3, NOON, NOON + 90_000, 70_000)]),
    )
    assert texts(archive) == [
        "source 'clicks', subtask 2/4, waits for its split 'p7': its watermark is 1 min 30 s behind the others, and "
        "has not moved for 1 min 10 s, no records for 1 min 10 s."
    ]


def test_plain_numbers_are_no_times() -> None:
    archive = job(window=(["clicks"], 3, [channel("?", 1, 5, 900_000, 20_000)]))
    assert texts(archive) == [
        "window waits for window, subtask 4/4: its watermark is 5, that of others 900000, and has not moved for 20.0 s."
    ]


@pytest.mark.parametrize("row", [
    channel("clicks", 1, NOON, NOON, 900_000),  # all stand at the same time
    channel("clicks", 1, NOON, NOON + 30_000, 2_000),  # it is behind, and moves
    {**ROW, "input": 1, "idle": 2, "all_idle": True},
])  # fmt: skip
def test_what_is_usual_is_not_told(row: dict[str, Any]) -> None:
    assert texts(job(clicks=([], 1, []), window=(["clicks"], 3, [row]))) == []


def test_the_slowest_subtask_is_chosen_among_those_that_are_not_idle() -> None:
    vertex = VertexEventTime()
    vertex.add(0, progress_in([split("a", NOON, 0)]))
    vertex.add(1, progress_in([{**ROW, "input": 0, "idle": 2, "all_idle": True}]))
    vertex.add(2, progress_in([split("b", NOON - 5, 0)]))
    vertex.add(3, progress_in([{**ROW, "input": 0, "ended": 2}]))
    shown = vertex.shown()
    assert (shown["subtask"], shown["inputs"][0]["split"]) == (2, "b")
    assert (shown["idle"], shown["idle-count"]) == ([1], 1)
    assert VertexEventTime().shown() == {}


@pytest.mark.parametrize("report", [None, "text", {}, [None], [{"input": "1"}], [{"input": True, **ROW}], [[]]])
def test_a_report_that_does_not_fit_is_dropped(report: Any) -> None:
    assert progress_in(report) == ()


def test_a_report_is_bounded() -> None:
    (row,) = progress_in([{**split("x" * 1000, NOON, 0), "watermark": "no", "user": {"big": 1}}])
    assert len(row["split"]) == 200
    assert "watermark" not in row
    assert "user" not in row
    assert len(progress_in([split("x", NOON, 0)] * 1000)) == 100
