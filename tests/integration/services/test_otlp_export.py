"""Metrics and logs on their way to a receiver: over HTTP and gRPC."""

from __future__ import annotations

import logging
import socket

import pytest

from firesteel.config import Settings
from firesteel.metrics import Measured
from firesteel.otel.meters import Meters
from firesteel.otel.settings import OtlpReporter
from firesteel.service.otlp_logs import exported_logs
from firesteel.service.otlp_metrics import LARGEST, OtlpMetricReporter
from firesteel.traces.context import TraceContext
from tests.integration.processes.otlp import Receiver, receiver

TASK = ("taskmanager", "job", "task")
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])


def reporter_of(collector: Receiver, protocol: str, signal: str) -> OtlpReporter:
    endpoint = collector.grpc_endpoint if protocol == "grpc" else f"{collector.address}/v1/{signal}"
    return OtlpReporter("o", endpoint, protocol, service="orders", interval=3600.0)


@PROTOCOLS
def test_values_arrive_with_flinks_names(protocol: str) -> None:
    with receiver() as collector:
        reporter = OtlpMetricReporter(reporter_of(collector, protocol, "metrics"), "taskmanager", lambda: 5_000_000_000)
        reporter.report(
            [
                Measured(TASK, "numRecordsIn", 7, {"subtask_index": "1"}, grows=True),
                Measured(TASK, "busyTimeMsPerSecond", 2.5, {"subtask_index": "1"}),
                Measured((*TASK, "operator"), "size", 3, {"operator_name": "Map"}, 6.0, {0.5: 2.0, 0.99: 3.0}),
            ]
        )
        reporter.close()
        (records,) = collector.points_named("flink.taskmanager.job.task.numRecordsIn")
        assert (records.value, records.is_sum, records.attributes) == (7, True, {"subtask_index": "1"})
        assert records.resource["service.name"] == "orders"
        assert records.resource["firesteel.part"] == "taskmanager"
        (busy,) = collector.points_named("flink.taskmanager.job.task.busyTimeMsPerSecond")
        assert (busy.value, busy.is_sum) == (2.5, False)
        of_sizes = {
            (point.name.rpartition("operator.")[2], point.attributes.get("quantile")): point.value
            for point in collector.points if "operator" in point.name
        }  # fmt: skip
        assert of_sizes == {("size.count", None): 3, ("size.sum", None): 6, ("size", "0.5"): 2, ("size", "0.99"): 3}


def test_many_values_go_in_several_requests() -> None:
    with receiver() as collector:
        reporter = OtlpMetricReporter(reporter_of(collector, "http", "metrics"), "taskmanager", lambda: 1)
        reporter.report([Measured(TASK, "a", number, {"n": str(number)}) for number in range(2 * LARGEST + 1)])
        reporter.close()
        assert len(collector.headers) == 3
        assert {point.value for point in collector.points} == set(range(2 * LARGEST + 1))


def test_a_receiver_that_is_away_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}/v1/metrics"
        reporter = OtlpMetricReporter(OtlpReporter("o", endpoint, timeout=0.3), "taskmanager", lambda: 1)
        for _ in range(2):
            reporter.report([Measured(TASK, "a", 1)])
        reporter.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "takes no metrics: 1 are lost" in said[0]


@PROTOCOLS
def test_meters_of_users_arrive(protocol: str) -> None:
    with receiver() as collector:
        meters = Meters([reporter_of(collector, protocol, "metrics")], "slot", {"job.id": "ab"})
        meters.provider.get_meter("mine").create_counter("orders").add(3, {"kind": "new"})
        assert meters.close(20.0)
        (point,) = collector.points_named("orders")
        assert (point.value, point.attributes, point.resource["job.id"]) == (3, {"kind": "new"}, "ab")


@PROTOCOLS
def test_logs_arrive_with_their_fields_and_span(protocol: str) -> None:
    trace = TraceContext.new()
    with receiver() as collector:
        endpoint = collector.grpc_endpoint if protocol == "grpc" else collector.address
        options = {"factory.class": "otel", "exporter.protocol": protocol, "exporter.endpoint": endpoint}
        settings = Settings({f"firesteel.logs.reporter.o.{key}": value for key, value in options.items()})
        logger = logging.getLogger("of.a.user")
        with exported_logs(settings, "taskmanager"):
            fields = {"job": "ab", "vertex": "Map", "subtask": 1, "attempt": 2, "traceparent": trace.header}
            logger.warning("%d orders", 3, extra=fields)
            logging.getLogger("urllib3").warning("what exporters say goes nowhere")
            try:
                raise ValueError("broken")
            except ValueError:
                logger.exception("no order")
        logger.warning("when it is over")
        first, second = collector.logs
        assert (first.text, first.level, first.logger, first.span) == (
            "3 orders", "WARNING", "of.a.user", trace.span_id
        )  # fmt: skip
        assert first.attributes == {"job.id": "ab", "vertex.name": "Map", "subtask": 1, "attempt": 2}
        assert first.resource["firesteel.part"] == "taskmanager"
        assert (second.text, second.span) == ("no order", "")
        assert second.attributes["exception.type"] == "ValueError"
        assert "raise ValueError" in second.attributes["exception.stacktrace"]


def test_without_reporters_nothing_is_done() -> None:
    handlers = list(logging.getLogger().handlers)
    with exported_logs(Settings(), "taskmanager"):
        assert logging.getLogger().handlers == handlers
