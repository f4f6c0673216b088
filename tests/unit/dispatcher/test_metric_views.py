"""Answers below ``/metrics`` have Flink's shapes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.rest.metric_views import one_subtask_metrics, subtask_metrics, vertex_metrics, vertex_watermarks
from firesteel.rest.views import UnknownVertexError, vertex_details


def archive(*tasks: dict[str, Any]) -> dict[str, Any]:
    subtasks = [
        {
            "subtask": index, "status": "RUNNING", "attempt": 0, "endpoint": "h:1", "taskmanager-id": "tm",
            "start-time": 1, "start_time": 1, "end-time": -1, "duration": 4, "task-metrics": metrics,
            "timestamps": {}, "metrics": {}, "status-duration": {},
        }
        for index, metrics in enumerate(tasks)
    ]  # fmt: skip
    vertex = {"id": "v", "name": "Map", "parallelism": len(tasks), "maxParallelism": 128, "subtasks": subtasks}
    return {"jid": "j", "now": 5, "vertices": [vertex]}


TWO = archive({"numRecordsIn": 10, "Map.hits": 1, "Map.city": "Oslo"}, {"numRecordsIn": 30, "Map.hits": 4})


def ask(view: Any, **query: str) -> Any:
    return view(TWO, {"vertex_id": "v", **query})


def test_without_get_there_are_only_ids() -> None:
    assert ask(vertex_metrics) == [
        {"id": name} for name in ("0.numRecordsIn", "0.Map.hits", "0.Map.city", "1.numRecordsIn", "1.Map.hits")
    ]
    assert ask(subtask_metrics) == [{"id": "numRecordsIn"}, {"id": "Map.hits"}]
    assert ask(one_subtask_metrics, subtask="1") == [{"id": "numRecordsIn"}, {"id": "Map.hits"}]


def test_watermarks_are_those_of_the_inputs() -> None:
    archived = archive({"currentInputWatermark": -(2**63), "currentOutputWatermark": 5}, {"currentInputWatermark": 7})
    assert vertex_watermarks(archived, {"vertex_id": "v"}) == [
        {"id": "0.currentInputWatermark", "value": "-9223372036854775808"},
        {"id": "1.currentInputWatermark", "value": "7"},
    ]
    assert vertex_watermarks(archive({"currentOutputWatermark": 5}), {"vertex_id": "v"}) == [], "a source"
    source = archive({"currentOutputWatermark": 5, "split.a.b.watermark.currentWatermark": 7})
    assert vertex_watermarks(source, {"vertex_id": "v"}) == [
        {"id": "0.split.a.b.watermark.currentWatermark", "value": "7"}
    ]


def test_plain_values_are_texts_and_unknown_ids_are_left_out() -> None:
    assert ask(vertex_metrics, get="0.Map.city,1.Map.hits,7.x") == [
        {"id": "0.Map.city", "value": "Oslo"},
        {"id": "1.Map.hits", "value": "4"},
    ]
    assert ask(one_subtask_metrics, subtask="0", get="Map.hits") == [{"id": "Map.hits", "value": "1"}]


def test_aggregates_are_numbers() -> None:
    (metric,) = ask(subtask_metrics, get="numRecordsIn")
    assert {**metric, "skew": round(metric["skew"], 3)} == {
        "id": "numRecordsIn", "min": 10, "max": 30, "avg": 20.0, "sum": 40, "skew": 50.0,
    }  # fmt: skip
    assert ask(subtask_metrics, get="Map.hits", agg="sum,MAX") == [{"id": "Map.hits", "sum": 5, "max": 4}]
    assert ask(subtask_metrics, get="Map.hits", subtasks="1-9") == [
        {"id": "Map.hits", "min": 4, "max": 4, "avg": 4.0, "sum": 4, "skew": 0.0}
    ]


def test_a_missing_id_empties_the_aggregate() -> None:
    assert ask(subtask_metrics, get="numRecordsIn,nobody") == []


def test_nan_is_a_text() -> None:
    metrics = subtask_metrics(archive({"x": math.nan}), {"vertex_id": "v", "get": "x", "agg": "sum"})
    assert metrics == [{"id": "x", "sum": "NaN"}]


@pytest.mark.parametrize("query", [{"agg": "median"}, {"subtasks": "a"}, {"subtasks": "-1"}, {"subtasks": "7"}])
def test_bad_parameters_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        ask(subtask_metrics, get="numRecordsIn", **query)


def test_a_vertex_that_is_not_there() -> None:
    with pytest.raises(UnknownVertexError):
        vertex_metrics(TWO, {"vertex_id": "w"})


def test_the_details_of_a_vertex_do_not_hold_them() -> None:
    assert all("task-metrics" not in subtask for subtask in vertex_details(TWO, "v")["subtasks"])
