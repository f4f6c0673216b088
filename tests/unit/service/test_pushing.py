"""Reporters that send: when they are called, with what, and what becomes of those that raise."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.metrics import Measured, MetricReporter
from firesteel.service.base import Service
from firesteel.service.pushing import Pushing
from firesteel.service.reporting import report_metrics


class Kept(MetricReporter):
    """What reporters were told, in this process."""

    made: list[Kept] = []

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self.parameters, self.thread = parameters, threading.current_thread()
        self.reports: list[list[str]] = []
        self.closed = 0
        self.made.append(self)

    def report(self, measured: Sequence[Measured]) -> None:
        assert threading.current_thread() is self.thread
        self.reports.append([metric.name for metric in measured])
        if self.parameters.get("fails") == "yes":
            raise OSError("away")

    def close(self) -> None:
        self.closed += 1


def no_factory(parameters: Mapping[str, str]) -> object:
    return object()


async def measured() -> list[Measured]:
    return [Measured(("jobmanager",), "a", 1), Measured(("taskmanager",), "b", 2)]


def run(make: Callable[[], MetricReporter], times: int, filtered: Callable[[Iterable[Measured]], Any] = list) -> None:
    """Let so many intervals pass, then end."""

    async def main() -> None:
        left, over = times, asyncio.Event()

        async def sleep(seconds: float) -> None:
            nonlocal left
            assert seconds == 7.0
            if not left:
                over.set()
                await asyncio.Event().wait()
            left -= 1

        task = asyncio.create_task(Pushing("r", make, measured, filtered, 7.0, sleep).run())
        waits = asyncio.create_task(over.wait())
        await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
        for task_ in (task, waits):
            task_.cancel()
        await asyncio.gather(task, waits, return_exceptions=True)

    asyncio.run(main())


def test_a_reporter_reports_in_each_interval_on_its_own_thread_and_is_closed() -> None:
    reporters: list[Kept] = []

    def make() -> Kept:
        reporters.append(Kept({}))
        return reporters[-1]

    run(make, 3, lambda values: [value for value in values if value.name == "b"])
    (reporter,) = reporters
    assert (reporter.reports, reporter.closed) == ([["b"]] * 3, 1)
    assert reporter.thread is not threading.main_thread()


def test_what_it_raises_is_said_now_and_then_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Kept({"fails": "yes"})

    def make() -> Kept:
        reporter.thread = threading.current_thread()
        return reporter

    run(make, 12)
    assert len(reporter.reports) == 12
    said = [record.getMessage() for record in caplog.records if "has failed" in record.getMessage()]
    assert [text.partition("(")[2].partition(" ")[0] for text in said] == ["1", "10"]
    assert "OSError: away" in said[0]
    assert reporter.closed == 1


def test_a_reporter_that_cannot_be_made_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Kept:
        raise LookupError("no such key")

    run(make, 1)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "the metric reporter r is off: LookupError: no such key"


def test_a_reporter_of_ones_own_gets_its_parameters() -> None:
    settings = {
        "metrics.reporter.mine.factory.class": f"{__name__}:Kept",
        "metrics.reporter.mine.interval": "2 s",
        "metrics.reporter.mine.colour": "red",
    }
    service = Service("taskmanager")
    before = len(Kept.made)
    report_metrics(service, Settings(settings), ())
    ((run, name),) = service._beside
    assert name == "metric reporter mine"
    assert len(Kept.made) == before, "it is made when the service runs"
    pushing = run.__self__  # type: ignore[attr-defined]
    assert pushing._interval == 2.0
    assert pushing._make().parameters == {"interval": "2 s", "colour": "red"}


def test_where_somebody_else_sends_the_same_nothing_is_sent() -> None:
    service = Service("jobmaster")
    report_metrics(service, Settings({"metrics.reporters": "otel"}), (), sends=False)
    assert service._beside == []


def test_what_makes_no_reporter_is_refused() -> None:
    service = Service("taskmanager")
    report_metrics(service, Settings({"metrics.reporter.m.factory.class": f"{__name__}:no_factory"}), ())
    ((run, _),) = service._beside
    with pytest.raises(TypeError, match="makes a object, which is no MetricReporter"):
        run.__self__._make()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"factory.class": "graphite"}, "there is no metric reporter 'graphite'; known: otel, prometheus; or name one"),
        ({"factory.class": "no_such_module:X"}, "can't be imported: ModuleNotFoundError"),
        ({"factory.class": f"{__name__}:nothing"}, "has no 'nothing'"),
        ({"factory.class": f"{__name__}:TEXT"}, "can't be called"),
        ({"factory.class": "otel", "interval": "soon"}, r"metrics.reporter.m.interval = 'soon' is not valid"),
        ({"factory.class": "otel", "interval": "0 s"}, "expected more than nothing"),
        ({"factory.class": "otel", "port": "1"}, "metrics.reporter.m.port: a reporter over OTLP has no such parameter"),
        ({"factory.class": "otel", "filter.includes": "a:b:c:d"}, "filter.includes: 'a:b:c:d' is not valid"),
        ({"factory.class": "otel", "exporter.protocol": "grpc", "exporter.endpoint": "http://a/b"}, "has no path"),
    ],
)
def test_bad_settings_are_named(settings: Mapping[str, str], said: str) -> None:
    options = {f"metrics.reporter.m.{key}": value for key, value in settings.items()}
    with pytest.raises(ConfigurationError, match=said):
        report_metrics(Service("taskmanager"), Settings(options), ())


TEXT = "no function"
