"""Which reporters are configured."""

from __future__ import annotations

import pytest

from firesteel.config import Settings, options
from firesteel.config.reporters import Reporter, reporters_of
from firesteel.core.errors import ConfigurationError

FACTORIES = {"prom": "prometheus", "org.apache.flink.Prometheus": "prometheus"}


def reporters(**settings: str) -> list[Reporter]:
    values = {key.replace("__", "."): value for key, value in settings.items()}
    return reporters_of(Settings(values), options.METRICS_REPORTERS, "metrics.reporter.", FACTORIES)


def test_without_settings_there_are_none() -> None:
    assert reporters() == []
    assert reporters(metrics__reporter__prom__port="9249") == [], "Flink wants a factory, too"


def test_a_reporter_is_found_by_its_factory_or_by_its_name() -> None:
    by_factory = reporters(
        metrics__reporter__p__factory__class="org.apache.flink.Prometheus", metrics__reporter__p__port="1"
    )
    assert by_factory == [Reporter("p", "metrics.reporter.", "prometheus", {"port": "1"})]
    assert by_factory[0].key("port") == "metrics.reporter.p.port"
    assert [reporter.factory for reporter in reporters(metrics__reporters="prom")] == ["prometheus"]


def test_the_list_says_which_of_them_are_used() -> None:
    both = {"metrics__reporter__a__factory__class": "x", "metrics__reporter__b__factory__class": "y"}
    assert [reporter.name for reporter in reporters(**both)] == ["a", "b"]
    assert [reporter.name for reporter in reporters(metrics__reporters="b, b", **both)] == ["b"]


def test_a_reporter_without_a_factory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"names 'graphite', of which metrics.reporter.graphite.factory.class"):
        reporters(metrics__reporters="graphite")


def test_parameters_of_reporters_are_no_unknown_keys() -> None:
    assert Settings({"metrics.reporter.prom.port": "9249"}).check() == []
    (warning,) = Settings({"metrics.latency.granularity": "single"}).check()
    assert "metrics.latency.granularity" in warning
