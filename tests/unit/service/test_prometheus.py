"""Text for Prometheus: names, labels and escapes, as its own parser reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.service.base import Service
from firesteel.service.measured import TASKMANAGER, Measured, numbers, summaries_of
from firesteel.service.prometheus import Exposition
from firesteel.service.reporting import report_metrics

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    """Name and labels -> value."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def samples(*measured: Measured, filters_values: bool = True) -> Samples:
    body, content_type = Exposition(filters_values).text(measured)
    assert content_type.startswith("text/plain")
    return parsed(body.decode())


def test_names_are_flinks_scope_and_the_metric() -> None:
    scope = (*TASKMANAGER, "job", "task")
    by_labels = samples(Measured(scope, "numRecordsIn", 3, {"job_id": "a1", "task_name": "Source: my lines"}))
    labels = frozenset({("job_id", "a1"), ("task_name", "Source:_my_lines")})
    assert by_labels == {("flink_taskmanager_job_task_numRecordsIn", labels): 3}


def test_values_of_labels_stay_as_they_are_where_that_is_wanted() -> None:
    text = 'say "hi"\\\nto König'
    ((name, labels),) = samples(Measured(TASKMANAGER, "x", 1, {"job_name": text}), filters_values=False)
    assert (name, dict(labels)) == ("flink_taskmanager_x", {"job_name": text})


def test_characters_that_prometheus_does_not_know_are_replaced() -> None:
    ((name, labels),) = samples(Measured((*TASKMANAGER, "bücher-1"), "a/b", 1, {"my-label": "x"}))
    assert (name, dict(labels)) == ("flink_taskmanager_b_cher_1_a_b", {"my_label": "x"})


def test_of_what_becomes_the_same_the_first_is_shown() -> None:
    metric = Measured(TASKMANAGER, "a-b", 1)
    distribution = Measured(TASKMANAGER, "a_b", 3, total=6, quantiles={0.5: 2})
    assert samples(metric, Measured(TASKMANAGER, "a_b", 2), distribution) == {("flink_taskmanager_a_b", frozenset()): 1}


def test_a_distribution_is_a_summary() -> None:
    values = {"size_count": 4, "size_sum": 10.0, "size_min": 1, "size_median": 2.5, "size_p99": 4.0}
    summaries, used = summaries_of(values)
    assert summaries == {"size": (4, 10.0, {0.5: 2.5, 0.99: 4.0})}
    assert used >= {"size_count", "size_sum", "size_median", "size_p99"}
    assert "size_min" not in used
    count, total, quantiles = summaries["size"]
    body, _ = Exposition().text([Measured(TASKMANAGER, "size", count, {"a": "b"}, total, quantiles)])
    (family,) = text_string_to_metric_families(body.decode())
    assert family.type == "summary"
    assert {(s.name, s.labels.get("quantile"), s.value) for s in family.samples} == {
        ("flink_taskmanager_size_count", None, 4),
        ("flink_taskmanager_size_sum", None, 10),
        ("flink_taskmanager_size", "0.5", 2.5),
        ("flink_taskmanager_size", "0.99", 4.0),
    }


def test_only_numbers_are_measured() -> None:
    metrics = numbers(TASKMANAGER, {"a": 1, "b": "text", "c": "nan", "d": 0.5, "e": None}, {})
    assert [metric.name for metric in metrics] == ["a", "c", "d"]


ON = {"metrics.reporters": "prom"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics.reporters": "a", "metrics.reporter.a.factory.class": "Slf4j"}, "no metric reporter 'Slf4j'"),
        ({**ON, "metrics.reporter.prom.port": "92490"}, "'92490' is not valid: expected a port or a range"),
        ({**ON, "metrics.reporter.prom.port": "9-8"}, "'9-8' is not valid"),
        ({**ON, "metrics.reporter.prom.filterLabelValueCharacters": "maybe"}, "filterLabelValueCharacters = 'maybe'"),
        ({"metrics.reporters": "prom;prometheus"}, "two reporters for Prometheus"),
    ],
)
def test_bad_settings_are_named(settings: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        report_metrics(Service("taskmanager"), Settings(settings), ())
