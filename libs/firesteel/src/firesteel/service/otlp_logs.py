"""Logs over OTLP (``firesteel.logs.reporters``): of services, and of slots, which log through TaskManagers."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from firesteel import __version__
from firesteel.config import Settings, options
from firesteel.config.reporters import reporters_of
from firesteel.core.errors import ConfigurationError
from firesteel.otel.exporters import logs_exporter, needs, resource_of, shut_down
from firesteel.otel.settings import LOGS, OTEL, OtlpReporter, read_otlp
from firesteel.service.logs import FIELDS, FieldsFilter
from firesteel.traces.context import TraceContext

logger = logging.getLogger(__name__)
PREFIX: Final = "firesteel.logs.reporter."
TRACE_FIELD: Final = "traceparent"
"""Field of a record: the span in which it was logged."""
_FACTORIES: Final = {"opentelemetry": OTEL}
_QUEUE: Final = 8192
_OWN: Final = ("opentelemetry", "urllib3", "requests", "grpc", "firesteel.otel")
"""Loggers of the exporters themselves, whose records would be exported in a circle."""
_NAMES: Final = {"job": "job.id", "vertex": "vertex.name", "subtask": "subtask", "attempt": "attempt"}
"""Fields of a record -> the attributes that spans have for the same values."""


def log_reporters(settings: Settings) -> tuple[OtlpReporter, ...]:
    """The configured log reporters; empty = logs are not exported.

    Raises:
        ConfigurationError: a reporter is not known, or one of its parameters is malformed.
    """
    reporters = reporters_of(settings, options.LOGS_REPORTERS, PREFIX, _FACTORIES)
    for reporter in reporters:
        if reporter.factory != OTEL:
            raise ConfigurationError(
                f"{reporter.key('factory.class')}: there is no log reporter {reporter.factory!r}; known: {OTEL}"
            )
    return tuple(read_otlp(reporter, LOGS) for reporter in reporters)


@contextmanager
def exported_logs(settings: Settings, part: str) -> Iterator[None]:
    """Send all records of this process to the log reporters as well, within the context.

    Args:
        settings: of the cluster.
        part: name of this process's part of the cluster.

    Raises:
        ConfigurationError: a reporter is not known, a parameter is malformed, or OpenTelemetry is not installed.
    """
    reporters = log_reporters(settings)
    if not reporters:
        yield
        return
    handler = OtlpHandler(reporters, part)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


class OtlpHandler(logging.Handler):
    """Hands records to OpenTelemetry, which sends them in the background; records beyond its queue are lost.

    Args:
        reporters: receivers of the records, at least one.
        part: name of this process's part of the cluster.

    Raises:
        ConfigurationError: OpenTelemetry is not installed.
    """

    def __init__(self, reporters: Sequence[OtlpReporter], part: str) -> None:
        super().__init__()
        try:
            from opentelemetry._logs import LogRecord, SeverityNumber
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        except ModuleNotFoundError as error:
            raise needs("logs over OTLP", error) from error
        self._record, self._severity = LogRecord, SeverityNumber
        self._provider = LoggerProvider(resource_of(reporters[0], part), shutdown_on_exit=False)
        for reporter in reporters:
            processor = BatchLogRecordProcessor(logs_exporter(reporter), max_queue_size=_QUEUE)
            self._provider.add_log_record_processor(processor)
        self.addFilter(FieldsFilter())
        self.addFilter(lambda record: not record.name.startswith(_OWN))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            attributes: dict[str, Any] = {
                _NAMES.get(name, name): value for name in FIELDS if (value := getattr(record, name, None)) is not None
            }
            if record.exc_info and record.exc_info[1] is not None:
                error = record.exc_info[1]
                attributes |= {
                    "exception.type": type(error).__qualname__,
                    "exception.message": str(error),
                    "exception.stacktrace": "".join(traceback.format_exception(error)),
                }
            trace = TraceContext.parse(getattr(record, TRACE_FIELD, None))
            time_ns = int(record.created * 1e9)
            otlp_record = self._record(
                timestamp=time_ns,
                observed_timestamp=time_ns,
                trace_id=int(trace.trace_id, 16) if trace is not None else None,
                span_id=int(trace.span_id, 16) if trace is not None else None,
                severity_text=record.levelname,
                severity_number=self._severity(_severity(record.levelno)),
                body=record.getMessage(),
                attributes=attributes,
            )
            self._provider.get_logger(record.name, __version__).emit(otlp_record)
        except Exception:  # a record that can't be exported must not hurt the code that logs
            self.handleError(record)

    def close(self) -> None:
        """Export the records that wait, within two seconds."""
        if not shut_down(self._provider.shutdown):
            logger.warning("logs could not be exported in time; the last ones are lost")
        super().close()


def _severity(level: int) -> int:
    """OpenTelemetry's numbers: DEBUG is 5, INFO 9, WARNING 13, ERROR 17, FATAL 21."""
    return min(21, max(1, level // 10 * 4 + 1))
