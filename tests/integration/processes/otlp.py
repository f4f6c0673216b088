"""A receiver of traces: OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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


class Receiver:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append(dict(self.headers))
                receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def take(self, request: Any) -> None:
        """Spans have come."""
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
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [
            span for span in list(self.spans)
            if span.name == name and all(span.attributes.get(key) == value for key, value in wanted.items())
        ]  # fmt: skip

    def below(self, parent: Received, name: str = "") -> list[Received]:
        """The spans directly below another."""
        return [
            span for span in list(self.spans)
            if (span.trace, span.parent) == (parent.trace, parent.id) and name in ("", span.name)
        ]  # fmt: skip

    def close(self) -> None:
        """Nothing comes any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _attributes(found: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that listens."""
    made = Receiver()
    try:
        yield made
    finally:
        made.close()
