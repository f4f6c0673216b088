"""In the place of the collector in docker-compose.yml: takes OTLP over HTTP, and says what has come.

GET /seen: names of what was received, by signal. GET /metrics on 8889: nothing, as Prometheus reads it.
"""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS: dict[str, tuple[Any, str, str, str]] = {
    "/v1/traces": (ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans"),
    "/v1/metrics": (ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics"),
    "/v1/logs": (ExportLogsServiceRequest, "resource_logs", "scope_logs", ""),
}
"""Path -> message, and the fields that lead to what has names: spans, metrics, loggers."""
SEEN: dict[str, dict[str, list[str]]] = {path: {} for path in KINDS}
LOCK = threading.Lock()


def part_of(of_resource: Any) -> str:
    """Which part of the cluster it comes from."""
    return next((a.value.string_value for a in of_resource.resource.attributes if a.key == "firesteel.part"), "")


class Handler(BaseHTTPRequestHandler):
    """Of both ports."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        kind, resources, scopes, named = KINDS[self.path]
        with LOCK:
            for of_resource in getattr(kind.FromString(body), resources):
                for scope in getattr(of_resource, scopes):
                    for record in getattr(scope, named) if named else [scope.scope]:
                        parts = SEEN[self.path].setdefault(record.name, [])
                        if part_of(of_resource) not in parts:
                            parts.append(part_of(of_resource))
        self._answer(b"")

    def do_GET(self) -> None:
        with LOCK:
            self._answer(json.dumps(SEEN).encode() if self.path == "/seen" else b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


if __name__ == "__main__":
    servers = [ThreadingHTTPServer(("", port), Handler) for port in (4318, 8889)]
    threading.Thread(target=servers[1].serve_forever, daemon=True).start()
    servers[0].serve_forever()
