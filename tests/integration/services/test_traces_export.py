"""Spans on their way: a receiver that is there, one that is not, and one that does not answer."""

from __future__ import annotations

import logging
import socket
import time

import pytest

from firesteel.otel.settings import OtlpReporter
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span, Tracing
from tests.integration.processes.otlp import receiver


def spans(count: int) -> list[Span]:
    return [Span(TraceContext.new(), f"span {number}", 1, 2) for number in range(count)]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_is_left_at_the_end_arrives(protocol: str) -> None:
    with receiver() as collector:
        endpoint = collector.endpoint if protocol == "http" else collector.grpc_endpoint
        reporter = OtlpReporter("o", endpoint, protocol, {"x-Key": "abc"}, service="orders")
        tracing = Tracing([reporter], "dispatcher")
        tracing.export(spans(1500))
        tracing.close(20.0)
        assert {span.name for span in collector.spans} == {f"span {number}" for number in range(1500)}
        assert collector.spans[0].resource["service.name"] == "orders"
        assert {str(v) for headers in collector.headers for k, v in headers.items() if k.lower() == "x-key"} == {"abc"}


def test_a_receiver_that_is_away_costs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        tracing = Tracing(
            [OtlpReporter("o", f"http://127.0.0.1:{bound.getsockname()[1]}/v1/traces", timeout=0.5)], "slot"
        )
        tracing.export(spans(3))
        tracing.close(20.0)
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in said] == ["firesteel.otel.exporters"], [
        log_record.getMessage() for log_record in said
    ]
    assert "takes no traces: 3 are lost" in said[0].getMessage()


def test_a_receiver_that_hangs_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        tracing = Tracing(
            [OtlpReporter("o", f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces", timeout=3.0)], "slot"
        )
        began = time.monotonic()
        tracing.export(spans(100))
        exported = time.monotonic() - began
        tracing.close(0.5)
        took = time.monotonic() - began
    assert "could not be exported within 0.5 s" in caplog.text
    assert exported < 2.0, "nobody waits for a receiver"
    assert took < 2.8
