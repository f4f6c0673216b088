"""Filters and labels of reporters, in Flink's syntax."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from firesteel.config.reporters import Reporter
from firesteel.core.errors import ConfigurationError
from firesteel.metrics import Measured
from firesteel.metrics.filters import selection_of

TASK = ("taskmanager", "job", "task")
VALUES = [
    Measured(("jobmanager",), "numRunningJobs", 1),
    Measured(("jobmanager", "job"), "uptime", 2),
    Measured(TASK, "numRecordsIn", 3, grows=True),
    Measured(TASK, "numRecordsInPerSecond", 4),
    Measured((*TASK, "operator"), "sizes", 5, quantiles={0.5: 1.0}),
]


def names(parameters: Mapping[str, str]) -> list[str]:
    return [metric.name for metric in selection_of(Reporter("r", "metrics.reporter.", "x", parameters))(VALUES)]


@pytest.mark.parametrize(
    ("includes", "excludes", "expected"),
    [
        ("", "", ["numRunningJobs", "uptime", "numRecordsIn", "numRecordsInPerSecond", "sizes"]),
        ("*:*:*", "", ["numRunningJobs", "uptime", "numRecordsIn", "numRecordsInPerSecond", "sizes"]),
        ("jobmanager*", "", ["numRunningJobs", "uptime"]),
        ("jobmanager", "", ["numRunningJobs"]),
        ("taskmanager.job.*:numRecords*,sizes:counter,histogram", "", ["numRecordsIn", "sizes"]),
        ("*:*:meter;jobmanager.job", "", ["uptime", "numRecordsInPerSecond"]),
        ("", "taskmanager.*", ["numRunningJobs", "uptime"]),
        ("*:num*", "*:*:gauge", ["numRecordsIn", "numRecordsInPerSecond"]),
    ],
)
def test_a_reporter_gets_what_its_filters_let_through(includes: str, excludes: str, expected: list[str]) -> None:
    assert names({"filter.includes": includes, "filter.excludes": excludes}) == expected


@pytest.mark.parametrize("bad", ["a:b:c:d", ":x", "a::gauge", "a:b:number"])
def test_a_malformed_filter_is_named(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.r\.filter\.excludes: .* is not valid"):
        names({"filter.excludes": bad})


def test_labels_are_left_out_and_added() -> None:
    parameters = {"scope.variables.excludes": "task_attempt_id;tm_id", "scope.variables.additional": "zone:a,rack:7"}
    metric = Measured(TASK, "numRecordsIn", 3, {"tm_id": "t", "task_attempt_id": "x", "subtask_index": "1"})
    (selected,) = selection_of(Reporter("r", "metrics.reporter.", "x", parameters))([metric])
    assert selected.labels == {"subtask_index": "1", "zone": "a", "rack": "7"}
    assert (selected.name, selected.value) == ("numRecordsIn", 3)
    with pytest.raises(ConfigurationError, match=r"metrics\.reporter\.r\.scope\.variables\.additional is not valid"):
        names({"scope.variables.additional": "zone"})
