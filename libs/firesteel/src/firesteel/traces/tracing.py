"""Spans on their way to a receiver. The only module that imports OpenTelemetry, and only where traces are on."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from firesteel import __version__
from firesteel.core.errors import ConfigurationError
from firesteel.traces.context import TraceContext
from firesteel.traces.settings import TraceReporter

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Span", "Tracing", "tracing_of"]

logger = logging.getLogger(__name__)
QUEUE: Final = 65536
"""Spans that wait for the receiver; further ones are dropped."""
BATCH: Final = 512
DELAY_MS: Final = 1000
"""A span waits so long for others to travel with it."""
FLUSH_SECONDS: Final = 2.0
Value = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """Something that is over.

    Attributes:
        context: of the span.
        name: of it.
        begin_ms, end_ms: epoch.
        parent: the span above it; None = it is the first one of its trace.
        attributes: what is known of it.
        links: other spans that have to do with it.
        error: why it failed; empty = it did not.
        events: name -> epoch ms.
    """

    context: TraceContext
    name: str
    begin_ms: int
    end_ms: int
    parent: TraceContext | None = None
    attributes: Mapping[str, Value] = field(default_factory=dict)
    links: Sequence[TraceContext] = ()
    error: str = ""
    events: Mapping[str, int] = field(default_factory=dict)


class Tracing:
    """Exports spans in the background; what a receiver does not take is lost, and costs a warning.

    Args:
        reporters: where spans go; one at least.
        part: of the cluster: ``dispatcher``, ``jobmaster`` or ``slot``.
        attributes: of all its spans.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(
        self, reporters: Iterable[TraceReporter], part: str, attributes: Mapping[str, str] | None = None
    ) -> None:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"traces need the package {error.name}, which is not installed: pip install firesteel[otel]"
            ) from error

        class Ids(IdGenerator):
            """Those of the span that is being made; spans of users have random ones."""

            def __init__(self) -> None:
                self.chosen: TraceContext | None = None
                self._random = RandomIdGenerator()

            def generate_trace_id(self) -> int:
                return self._random.generate_trace_id() if self.chosen is None else int(self.chosen.trace_id, 16)

            def generate_span_id(self) -> int:
                return self._random.generate_span_id() if self.chosen is None else int(self.chosen.span_id, 16)

        self.reporters = reporters = tuple(reporters)
        resource = Resource.create(
            {
                "service.name": reporters[0].service,
                "service.version": __version__,
                "firesteel.part": part,
                **(attributes or {}),
            }
        )
        self._ids = Ids()
        self.provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        for reporter in reporters:
            self.provider.add_span_processor(
                BatchSpanProcessor(
                    _exporter(reporter),
                    max_queue_size=QUEUE,
                    schedule_delay_millis=DELAY_MS,
                    max_export_batch_size=BATCH,
                )
            )
        self._tracer = self.provider.get_tracer("firesteel", __version__)
        self._lock = threading.Lock()

    def export(self, spans: Iterable[Span]) -> None:
        """Hand spans over; returns at once."""
        from opentelemetry.trace import Link, Status, StatusCode

        with self._lock:
            for span in spans:
                self._ids.chosen = span.context
                try:
                    made = self._tracer.start_span(
                        span.name,
                        _inside(span.parent),
                        attributes=dict(span.attributes),
                        links=[Link(_span_context(one)) for one in span.links],
                        start_time=span.begin_ms * 1_000_000,
                    )
                finally:
                    self._ids.chosen = None
                for name, at_ms in span.events.items():
                    made.add_event(name, timestamp=at_ms * 1_000_000)
                if span.error:
                    made.set_status(Status(StatusCode.ERROR, span.error))
                made.end(max(span.begin_ms, span.end_ms) * 1_000_000)

    def below(self, context: TraceContext) -> Callable[[Callable[[], None]], None]:
        """Something that calls a function in such a way that spans which it opens are below this one."""
        from opentelemetry.context import attach

        variables = contextvars.Context()
        variables.run(attach, _inside(context))
        inside = False

        def within(call: Callable[[], None]) -> None:
            nonlocal inside
            if inside:
                call()
                return
            inside = True
            try:
                variables.run(call)
            finally:
                inside = False

        return within

    def serve_users(self) -> None:
        """Tracers that code of this process asks OpenTelemetry for export here."""
        from opentelemetry.trace import set_tracer_provider

        set_tracer_provider(self.provider)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Export what there is, as far as that works within so many seconds."""
        thread = threading.Thread(target=self.provider.shutdown, name="firesteel-traces-end", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            logger.warning("traces could not be exported within %g s; the last spans are lost", seconds)


def tracing_of(reporters: Sequence[TraceReporter], part: str) -> Tracing | None:
    """What exports traces; None = nothing does.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    return Tracing(reporters, part) if reporters else None


def _span_context(context: TraceContext) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)


def _inside(parent: TraceContext | None) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return Context() if parent is None else set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())


def _exporter(reporter: TraceReporter) -> SpanExporter:
    import requests
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    session = requests.Session()
    session.trust_env = False  # a proxy of the environment is not meant for the cluster's collector
    otlp = OTLPSpanExporter(
        endpoint=reporter.endpoint, headers=dict(reporter.headers), timeout=reporter.timeout, session=session
    )
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)  # what fails is said below, and once

    class Quiet(SpanExporter):
        """Says the first, the 10th, the 100th time that the receiver takes nothing."""

        def __init__(self) -> None:
            self._failed = 0

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = otlp.export(spans)
            if result is SpanExportResult.SUCCESS:
                self._failed = 0
                return result
            self._failed += 1
            if str(self._failed).strip("0") == "1":
                logger.warning(
                    "%s (reporter %s) takes no traces: %d spans are lost (%d batches in a row by now)",
                    reporter.endpoint, reporter.name, len(spans), self._failed,
                )  # fmt: skip
            return result

        def shutdown(self) -> None:
            otlp.shutdown()  # type: ignore[no-untyped-call]

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return otlp.force_flush(timeout_millis)

    return Quiet()
