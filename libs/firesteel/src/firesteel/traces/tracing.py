"""Spans on their way to a receiver. OpenTelemetry is imported only where traces are on."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from firesteel import __version__
from firesteel.otel.exporters import FLUSH_SECONDS, needs, resource_of, shut_down, spans_exporter
from firesteel.otel.settings import OtlpReporter
from firesteel.traces.context import TraceContext

__all__ = ["Span", "Tracing", "current_header", "tracing_of"]

logger = logging.getLogger(__name__)
QUEUE: Final = 65536
"""Spans that wait for the receiver; further ones are dropped."""
BATCH: Final = 512
DELAY_MS: Final = 1000
"""A span waits so long for others to travel with it."""
_ATTRIBUTES: Final = "firesteel.attributes"
"""Where a context has those of what is below it."""
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
        part: of the cluster: ``dispatcher``, ``jobmaster``, ``taskmanager`` or ``slot``.
        attributes: of all its spans.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(
        self, reporters: Iterable[OtlpReporter], part: str, attributes: Mapping[str, str] | None = None
    ) -> None:
        try:
            from opentelemetry.sdk.trace import Span as SdkSpan
            from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
        except ModuleNotFoundError as error:
            raise needs("traces", error) from error

        class Ids(IdGenerator):
            """Those of the span that is being made; spans of users have random ones."""

            def __init__(self) -> None:
                self.chosen: TraceContext | None = None
                self._random = RandomIdGenerator()

            def generate_trace_id(self) -> int:
                return self._random.generate_trace_id() if self.chosen is None else int(self.chosen.trace_id, 16)

            def generate_span_id(self) -> int:
                return self._random.generate_span_id() if self.chosen is None else int(self.chosen.span_id, 16)

        class Described(SpanProcessor):
            """Spans of users have the attributes of what they are below."""

            def on_start(self, span: SdkSpan, parent_context: Any = None) -> None:
                for name, value in _described(parent_context).items():
                    span.set_attribute(name, value)

        self.reporters = reporters = tuple(reporters)
        resource = resource_of(reporters[0], part, attributes)
        self._ids = Ids()
        self.provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self.provider.add_span_processor(Described())
        for reporter in reporters:
            self.provider.add_span_processor(
                BatchSpanProcessor(
                    spans_exporter(reporter),
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

    def below(
        self, context: TraceContext, attributes: Mapping[str, Value] | None = None
    ) -> Callable[[Callable[[], None]], None]:
        """Something that calls a function in such a way that spans which it opens are below this one.

        Args:
            context: of this one.
            attributes: that these spans have.
        """
        from opentelemetry.context import attach, set_value

        variables = contextvars.Context()
        variables.run(attach, set_value(_ATTRIBUTES, dict(attributes or {}), _inside(context)))
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
        if not shut_down(self.provider.shutdown, seconds):
            logger.warning("traces could not be exported within %g s; the last spans are lost", seconds)


def tracing_of(reporters: Sequence[OtlpReporter], part: str) -> Tracing | None:
    """What exports traces; None = nothing does.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    return Tracing(reporters, part) if reporters else None


def current_header() -> str:
    """``traceparent`` of the span that is open here; empty = there is none."""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    return TraceContext(f"{found.trace_id:032x}", f"{found.span_id:016x}").header if found.is_valid else ""


def _span_context(context: TraceContext) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)


def _inside(parent: TraceContext | None) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return Context() if parent is None else set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())


def _described(context: Any) -> Mapping[str, Value]:
    from opentelemetry.context import get_value

    return cast("Mapping[str, Value]", get_value(_ATTRIBUTES, context) or {})
