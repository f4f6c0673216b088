"""Metrics of user functions: ids, values, bounds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from firesteel.functions.functions import MapFunction
from firesteel.graph.specs import OperatorKind
from firesteel.metrics import Counter, Distribution, Meter, MetricGroup
from firesteel.protocol.deployment import METRIC_RATES, METRIC_TOTALS
from firesteel.runtime.loop.activity import Rates
from firesteel.runtime.loop.metrics import MetricRegistry
from tests.unit.runtime.support import ManualClock, line, opened, run, spec


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry(clock)


def test_a_counter_counts(registry: MetricRegistry) -> None:
    counter = registry.group("Map").counter("hits")
    counter.inc()
    counter.inc(5)
    counter.dec(2)
    counter.dec()
    assert counter.get_count() == 3
    assert registry.values() == {"Map.hits": 3}
    assert isinstance(counter, Counter)


def test_groups_are_parts_of_the_id_and_characters_are_flinks(registry: MetricRegistry) -> None:
    group = registry.group("Source: my lines").add_group("table", "orders.eu").add_group("a,b")
    assert isinstance(group, MetricGroup)
    group.counter("hits")
    assert list(registry.values()) == ["Source__my_lines.table.orders_eu.a_b.hits"]


def test_a_meter_shows_events_per_second_of_its_time_span(registry: MetricRegistry, clock: ManualClock) -> None:
    meter = registry.group("Map").meter("rate", 60)
    assert isinstance(meter, Meter)
    assert registry.values() == {"Map.rate": 0.0}
    meter.mark_event(100)
    clock.now += 10
    assert registry.values() == {"Map.rate": 10.0}
    for _ in range(40):
        clock.now += 1
        registry.values()
    assert registry.values() == {"Map.rate": 2.0}
    for _ in range(61):
        clock.now += 1
        registry.values()
    assert registry.values() == {"Map.rate": 0.0}
    assert meter.get_count() == 100


def test_a_distribution_shows_percentiles(registry: MetricRegistry) -> None:
    distribution = registry.group("Map").distribution("size")
    assert isinstance(distribution, Distribution)
    assert registry.values() == {"Map.size_count": 0, "Map.size_sum": 0.0}
    for value in range(1, 101):
        distribution.update(value)
    values = registry.values()
    assert values["Map.size_count"] == 100
    assert (values["Map.size_min"], values["Map.size_max"], values["Map.size_mean"]) == (1, 100, 50.5)
    assert values["Map.size_sum"] == 5050
    assert (values["Map.size_median"], values["Map.size_p95"], values["Map.size_p999"]) == (51, 96, 100)


def test_a_gauge_is_read_when_asked(registry: MetricRegistry) -> None:
    box = [1]
    registry.group("Map").gauge("last", lambda: box[0])
    box[0] = 7
    assert registry.values() == {"Map.last": 7}
    registry.group("Map").gauge("last", lambda: 8)
    assert registry.values() == {"Map.last": 8}


def test_a_gauge_that_raises_is_left_out_and_named_once(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.group("Map").gauge("bad", lambda: 1 / 0)
    registry.group("Map").counter("good")
    with caplog.at_level(logging.WARNING):
        assert registry.values() == registry.values() == {"Map.good": 0}
    assert len(caplog.records) == 1
    assert "gauge bad raised ZeroDivisionError" in caplog.text


def test_texts_are_cut_and_infinities_are_texts(registry: MetricRegistry) -> None:
    registry.group("m").gauge("long", lambda: "x" * 10_000)  # type: ignore[arg-type, return-value]
    registry.group("m").gauge("nan", lambda: float("nan"))
    registry.group("m").gauge("flag", lambda: True)
    values = registry.values()
    assert values["m.long"] == "x" * 256
    assert (values["m.nan"], values["m.flag"]) == ("nan", "True")


def test_the_same_name_is_the_same_metric(registry: MetricRegistry) -> None:
    group = registry.group("Map")
    assert group.counter("a") is group.counter("a")
    assert group.meter("m") is group.meter("m")


def test_a_name_of_another_kind_is_not_shown(registry: MetricRegistry, caplog: pytest.LogCaptureFixture) -> None:
    group = registry.group("Map")
    group.counter("a").inc()
    group.meter("a").mark_event()
    assert registry.values() == {"Map.a": 1}
    assert "another kind" in caplog.text


def test_their_number_is_bounded(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    registry = MetricRegistry(clock, 2)
    counters = [registry.group("Map").counter(f"c{number}") for number in range(5)]
    for counter in counters:
        counter.inc()
    assert registry.values() == {"Map.c0": 1, "Map.c1": 1}
    assert len(caplog.records) == 1
    assert "firesteel.metrics.max-per-task" in caplog.text
    assert counters[4].get_count() == 1


@pytest.mark.parametrize("name", ["", None, 5])
def test_names_are_texts(registry: MetricRegistry, name: Any) -> None:
    for make in (registry.group("m").counter, registry.group("m").add_group, registry.group("m").meter):
        with pytest.raises(ValueError, match="not empty"):
            make(name)
    with pytest.raises(ValueError, match="time span"):
        registry.group("m").meter("m", 0)
    with pytest.raises(TypeError, match="without arguments"):
        registry.group("m").gauge("g", 5)  # type: ignore[arg-type]


class Counts(MapFunction[Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_metrics_group().add_group("records").counter("seen")

    def map(self, value: Any) -> Any:
        self.seen.inc()
        return value


def test_functions_get_the_group_of_their_operator(clock: ManualClock) -> None:
    registry = MetricRegistry(clock)
    chain = line(spec(OperatorKind.MAP, Counts(), name="first"), spec(OperatorKind.MAP, Counts(), name="second"))
    plan = opened(chain, clock, metrics=registry)
    run(plan, [1, 2, 3])
    assert registry.values() == {"first.records.seen": 3, "second.records.seen": 3}


def test_rates_are_those_of_the_last_minute(clock: ManualClock) -> None:
    rates = Rates(clock)
    totals: dict[str, float] = dict.fromkeys(METRIC_TOTALS, 0)
    assert set(rates.update(totals)) == set(METRIC_RATES.values())
    for _ in range(200):
        clock.now += 1
        totals = {name: total + 10 for name, total in totals.items()}
        per_second = rates.update(totals)
    assert per_second == dict.fromkeys(METRIC_RATES.values(), 10.0)
    clock.now += 30
    assert 4 < rates.update(totals)["numRecordsInPerSecond"] < 7, "half a minute without records"
    for _ in range(70):
        clock.now += 1
        per_second = rates.update(totals)
    assert per_second == dict.fromkeys(METRIC_RATES.values(), 0.0)
