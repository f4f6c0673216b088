"""A receiver of traces, metrics and logs: OTLP over HTTP and gRPC."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Received:
    """A span."""

    name: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]
    error: str
    events: list[str]


@dataclass(frozen=True)
class Point:
    """A value."""

    name: str
    value: float
    attributes: dict[str, Any]
    resource: dict[str, Any]
    is_sum: bool


@dataclass(frozen=True)
class Logged:
    """A log record."""

    logger: str
    level: str
    text: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    span: str


class Receiver:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.points: list[Point] = []
        self.logs: list[Logged] = []
        self.headers: list[dict[str, str]] = []
        receiver = self
        take: dict[str, tuple[Any, Callable[[Any], None]]] = {
            "/v1/traces": (trace_service_pb2.ExportTraceServiceRequest, self.take),
            "/v1/metrics": (metrics_service_pb2.ExportMetricsServiceRequest, self.take_metrics),
            "/v1/logs": (logs_service_pb2.ExportLogsServiceRequest, self.take_logs),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append({**self.headers, "path": self.path})
                kind, keep = take[self.path]
                keep(kind.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self.endpoint = f"{self.address}/v1/traces"
        self._grpc = grpc.server(ThreadPoolExecutor(2))
        services: list[tuple[Any, Callable[[Any], None], Callable[[], Any]]] = [
            (trace_service_pb2_grpc.add_TraceServiceServicer_to_server, self.take,
             trace_service_pb2.ExportTraceServiceResponse),
            (metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, self.take_metrics,
             metrics_service_pb2.ExportMetricsServiceResponse),
            (logs_service_pb2_grpc.add_LogsServiceServicer_to_server, self.take_logs,
             logs_service_pb2.ExportLogsServiceResponse),
        ]  # fmt: skip
        for add, keep, answer in services:
            add(_answers(self, keep, answer), self._grpc)
        self.grpc_endpoint = f"http://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def take(self, request: Any) -> None:
        for of_resource in request.resource_spans:
            resource = _attributes(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Received(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.start_time_unix_nano // 1_000_000,
                            span.end_time_unix_nano // 1_000_000,
                            _attributes(span.attributes),
                            resource,
                            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                            span.status.message if span.status.code == 2 else "",
                            [event.name for event in span.events],
                        )
                    )

    def named(self, name: str, **attributes: Any) -> list[Received]:
        """Spans of a name that have these attributes (``_`` for the dots)."""
        expected = {key.replace("_", "."): value for key, value in attributes.items()}
        return [
            span for span in list(self.spans)
            if span.name == name and all(span.attributes.get(key) == value for key, value in expected.items())
        ]  # fmt: skip

    def below(self, parent: Received, name: str = "") -> list[Received]:
        """The spans directly below another."""
        return [
            span for span in list(self.spans)
            if (span.trace, span.parent) == (parent.trace, parent.id) and name in ("", span.name)
        ]  # fmt: skip

    def take_metrics(self, request: Any) -> None:
        for of_resource in request.resource_metrics:
            resource = _attributes(of_resource.resource.attributes)
            for scope in of_resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    for point in getattr(metric, kind).data_points:
                        value = float(getattr(point, point.WhichOneof("value")))
                        attributes = _attributes(point.attributes)
                        self.points.append(Point(metric.name, value, attributes, resource, kind == "sum"))

    def take_logs(self, request: Any) -> None:
        """Log records have come."""
        for of_resource in request.resource_logs:
            resource = _attributes(of_resource.resource.attributes)
            for scope in of_resource.scope_logs:
                for record in scope.log_records:
                    attributes, text = _attributes(record.attributes), record.body.string_value
                    logged = Logged(
                        scope.scope.name, record.severity_text, text, attributes, resource, record.span_id.hex()
                    )
                    self.logs.append(logged)

    def points_named(self, name: str) -> list[Point]:
        """Values of one name."""
        return [point for point in list(self.points) if point.name == name]

    def close(self) -> None:
        """Nothing comes any more."""
        self._grpc.stop(0).wait()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answers(receiver: Receiver, keep: Callable[[Any], None], answer: Callable[[], Any]) -> Any:
    class Service:
        def Export(self, request: Any, context: Any) -> Any:  # gRPC's name
            receiver.headers.append(dict(context.invocation_metadata()))
            keep(request)
            return answer()

    return Service()


def _attributes(key_values: Any) -> dict[str, Any]:
    return {key_value.key: getattr(key_value.value, key_value.value.WhichOneof("value")) for key_value in key_values}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that listens."""
    otlp_receiver = Receiver()
    try:
        yield otlp_receiver
    finally:
        otlp_receiver.close()
