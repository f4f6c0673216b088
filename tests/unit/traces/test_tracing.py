"""Settings of traces, and spans as OpenTelemetry's SDK has them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel.otel.settings import OtlpReporter
from firesteel.traces.context import TraceContext
from firesteel.traces.settings import trace_reporters
from firesteel.traces.tracing import Span, Tracing, tracing_of

OTEL = {"traces.reporter.o.factory.class": "org.apache.flink.traces.otel.OpenTelemetryTraceReporterFactory"}


def test_reporters_are_read() -> None:
    assert trace_reporters(Settings()) == ()
    assert trace_reporters(Settings({"traces.reporters": "otel"})) == (
        OtlpReporter("otel", "http://127.0.0.1:4318/v1/traces"),
    )
    (reporter,) = trace_reporters(
        Settings(
            {
                **OTEL,
                "traces.reporter.o.exporter.endpoint": "https://collector:4318",
                "traces.reporter.o.exporter.http-headers": "a:b,c:d",
                "traces.reporter.o.exporter.timeout": "2 s",
                "traces.reporter.o.service.name": "orders",
            }
        )
    )
    expected = OtlpReporter("o", "https://collector:4318/v1/traces", "http", {"a": "b", "c": "d"}, 2.0, "orders")
    assert reporter == expected == OtlpReporter.from_plain(reporter.to_plain())
    assert "'b'" not in repr(reporter)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"traces.reporter.o.factory.class": "Zipkin"}, "no trace reporter 'Zipkin'"),
        ({**OTEL, "traces.reporter.o.exporter.endpoint": "collector:4317"}, "'collector:4317' is not valid"),
        ({**OTEL, "traces.reporter.o.exporter.endpoint": "http://a:99999"}, "is not valid"),
        ({**OTEL, "traces.reporter.o.exporter.protocol": "udp"}, "exporter.protocol = 'udp' is not valid"),
        ({**OTEL, "traces.reporter.o.exporter.timeout": "soon"}, "exporter.timeout is not valid"),
        ({**OTEL, "traces.reporter.o.port": "1"}, "traces.reporter.o.port: a reporter over OTLP has no such parameter"),
        ({"traces.reporters": "jaeger"}, "traces.reporter.jaeger.factory.class is not set"),
    ],
)
def test_bad_settings_are_named(settings: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        trace_reporters(Settings(settings))


class Kept(SpanProcessor):
    """Spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


@pytest.fixture
def tracing() -> Any:
    traces = Tracing([OtlpReporter("o", "http://127.0.0.1:9/v1/traces", timeout=0.1)], "slot")
    yield traces
    traces.close()


def exported_spans(tracing: Tracing) -> Kept:
    processor = Kept()
    processors = tracing.provider._active_span_processor
    processors._span_processors = (*processors._span_processors[:1], processor)  # and none that sends
    return processor


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.context
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_a_span_has_the_ids_that_were_chosen(tracing: Tracing) -> None:
    spans = exported_spans(tracing).spans
    root, other = TraceContext.new(), TraceContext.new()
    child = root.child()
    tracing.export(
        [
            Span(root, "Recovery", 1000, 3000, None, {"job.id": "a"}, [other], "it broke", {"running": 2000}),
            Span(child, "Attempt", 1500, 1400, root),
        ]
    )
    first, second = spans
    assert (ids(first), ids(second)) == ((root.trace_id, root.span_id), (child.trace_id, child.span_id))
    assert first.parent is None
    assert second.parent is not None
    assert f"{second.parent.span_id:016x}" == root.span_id
    assert (first.start_time, first.end_time) == (1_000_000_000, 3_000_000_000)
    assert second.end_time == second.start_time == 1_500_000_000, "clocks may go back"
    assert dict(first.attributes or {}) == {"job.id": "a"}
    assert [f"{link.context.span_id:016x}" for link in first.links] == [other.span_id]
    assert (first.status.is_ok, first.status.description) == (False, "it broke")
    assert [(event.name, event.timestamp) for event in first.events] == [("running", 2_000_000_000)]
    assert first.resource.attributes["firesteel.part"] == "slot"


def test_a_span_of_user_code_on_another_thread_does_not_get_the_ids_of_an_exported_one(tracing: Tracing) -> None:
    spans = exported_spans(tracing).spans
    tracer = tracing.provider.get_tracer("user")

    class Meanwhile(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            if span.name == "Recovery":
                thread = threading.Thread(target=lambda: tracer.start_span("work").end())
                thread.start()
                thread.join()

    tracing.provider.add_span_processor(Meanwhile())
    root = TraceContext.new()
    tracing.export([Span(root, "Recovery", 1000, 3000)])
    users, exported = spans
    assert (users.name, ids(exported)) == ("work", (root.trace_id, root.span_id))
    assert ids(users)[1] != root.span_id


def test_what_a_client_does_not_record_is_not_recorded(tracing: Tracing) -> None:
    spans = exported_spans(tracing).spans
    above = TraceContext(TraceContext.new().trace_id, TraceContext.new().span_id, sampled=False)
    tracing.export([Span(above.child(), "Submission", 1, 2, above)])
    assert spans == []


def test_spans_of_users_are_below_what_calls_them(tracing: Tracing) -> None:
    spans = exported_spans(tracing).spans
    tracer = tracing.provider.get_tracer("user")
    attempts = [TraceContext.new().below("v_0_0"), TraceContext.new().below("v_1_0")]

    def work() -> None:
        with tracer.start_as_current_span("work"):
            pass

    within = [tracing.below(attempt, {"subtask": subtask}) for subtask, attempt in enumerate(attempts)]
    for call in (*within, *within):
        call(work)
    within[0](lambda: within[0](work))
    parents = [f"{span.parent.span_id:016x}" for span in spans if span.parent is not None]
    assert parents == [attempts[i].span_id for i in (0, 1, 0, 1, 0)]
    assert [dict(span.attributes or {}) for span in spans] == [{"subtask": i} for i in (0, 1, 0, 1, 0)]
    assert not trace.get_current_span().get_span_context().is_valid, "nothing of it stays behind"
    assert len({ids(span) for span in spans}) == 5


def test_what_raises_inside_comes_out(tracing: Tracing) -> None:
    within = tracing.below(TraceContext.new())

    def fails() -> None:
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            within(fails)


def test_nothing_is_imported_where_traces_are_off() -> None:
    assert tracing_of((), "slot") is None
    modules = (
        "firesteel_jobmaster.app, firesteel_dispatcher.app, firesteel.runtime.slot.slot, firesteel_taskmanager.app"
    )
    program = (
        f"import sys, {modules}\n"
        "found = [m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus_client', 'requests'))]\n"
        "sys.exit(' '.join(found) or None)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
