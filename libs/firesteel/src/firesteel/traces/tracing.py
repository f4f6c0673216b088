"""Export of spans to receivers. OpenTelemetry is imported only where traces are on."""

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
"""Number of spans that may wait for the receiver; further ones are dropped."""
BATCH: Final = 512
DELAY_MS: Final = 1000
"""Longest time that a span waits for others of its batch."""
_ATTRIBUTES: Final = "firesteel.attributes"
"""Key in a context of the attributes for all spans below it."""
Value = str | int | float | bool


@dataclass(frozen=True)
class Span:
    """A piece of work that has ended.

    Attributes:
        context: ids of the span.
        name: name of the work.
        begin_ms, end_ms: when it began and ended, in epoch ms.
        parent: the span above it; None = it is the first one of its trace.
        attributes: further information about it.
        links: related spans outside of this line of parents.
        error: why the work failed; empty = it did not fail.
        events: event -> when it happened, in epoch ms.
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
    """Exports spans in the background. Spans that a receiver does not take are lost, with a warning.

    Args:
        reporters: receivers of the spans, at least one.
        part: part of the cluster: ``dispatcher``, ``jobmaster``, ``taskmanager`` or ``slot``.
        attributes: attributes of all spans.

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
            """Gives the span that ``export`` makes its own ids, and spans of user code random ones.

            User code opens spans on other threads while ``export`` runs, so each thread has its own choice.
            """

            def __init__(self) -> None:
                self._thread = threading.local()
                self._random = RandomIdGenerator()

            def choose(self, context: TraceContext | None) -> None:
                self._thread.chosen = context

            def _chosen(self) -> TraceContext | None:
                return getattr(self._thread, "chosen", None)

            def generate_trace_id(self) -> int:
                chosen = self._chosen()
                return self._random.generate_trace_id() if chosen is None else int(chosen.trace_id, 16)

            def generate_span_id(self) -> int:
                chosen = self._chosen()
                return self._random.generate_span_id() if chosen is None else int(chosen.span_id, 16)

        class Described(SpanProcessor):
            """Gives spans of user code the attributes that ``below`` has set for them."""

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

    def export(self, spans: Iterable[Span]) -> None:
        """Queue spans for the receivers; does not wait. May be called from any thread."""
        from opentelemetry.trace import Link, Status, StatusCode

        for span in spans:
            self._ids.choose(span.context)
            try:
                sdk_span = self._tracer.start_span(
                    span.name,
                    _inside(span.parent),
                    attributes=dict(span.attributes),
                    links=[Link(_span_context(link)) for link in span.links],
                    start_time=span.begin_ms * 1_000_000,
                )
            finally:
                self._ids.choose(None)
            for name, at_ms in span.events.items():
                sdk_span.add_event(name, timestamp=at_ms * 1_000_000)
            if span.error:
                sdk_span.set_status(Status(StatusCode.ERROR, span.error))
            sdk_span.end(max(span.begin_ms, span.end_ms) * 1_000_000)

    def below(
        self, context: TraceContext, attributes: Mapping[str, Value] | None = None
    ) -> Callable[[Callable[[], None]], None]:
        """Return a caller of functions: spans that these open have the given span as their parent.

        Args:
            context: the parent.
            attributes: attributes of the spans that the functions open.
        """
        from opentelemetry.context import attach, set_value

        variables = contextvars.Context()
        variables.run(attach, set_value(_ATTRIBUTES, dict(attributes or {}), _inside(context)))
        entered = False

        def call_below(call: Callable[[], None]) -> None:
            nonlocal entered
            if entered:  # nested call: a context can't be entered twice
                call()
                return
            entered = True
            try:
                variables.run(call)
            finally:
                entered = False

        return call_below

    def serve_users(self) -> None:
        """Make this the provider of all tracers that user code in this process gets from OpenTelemetry."""
        from opentelemetry.trace import set_tracer_provider

        set_tracer_provider(self.provider)

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Export the spans that wait, as far as that works within ``seconds``."""
        if not shut_down(self.provider.shutdown, seconds):
            logger.warning("traces could not be exported within %g s; the last spans are lost", seconds)


def tracing_of(reporters: Sequence[OtlpReporter], part: str) -> Tracing | None:
    """Return the exporter of traces; None = there are no reporters.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """
    return Tracing(reporters, part) if reporters else None


def current_header() -> str:
    """Return the ``traceparent`` header of the span that is open on this thread; empty = there is none."""
    from opentelemetry.trace import get_current_span

    current = get_current_span().get_span_context()
    return TraceContext(f"{current.trace_id:032x}", f"{current.span_id:016x}").header if current.is_valid else ""


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
