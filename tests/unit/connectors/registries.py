"""A schema registry of the tests' own: it speaks Confluent's REST API, in memory or by HTTP."""

from __future__ import annotations

import email.message
import io
import json
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


def refusal(code: int, said: str = "") -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://registry", code, "no", email.message.Message(), io.BytesIO(said.encode()))


class Registry:
    """Keeps schemas; numbers are from 1. ``registry(url, body)`` answers as a server would.

    Args:
        trouble: what the first calls raise.

    Attributes:
        asked: the paths of all calls.
        schemas: by number, as they are answered.
        subjects: the numbers of their versions.
        closed: nothing new is registered: "not compatible".
    """

    def __init__(self, *trouble: Exception) -> None:
        self._trouble = list(trouble)
        self.asked: list[str] = []
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.closed = False

    def add(
        self, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None, subject: str = "s"
    ) -> int:
        """Register a schema; the same one keeps its number."""
        schema: dict[str, Any] = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        if references:
            schema["references"] = references
        number = next(
            (schema_id for schema_id, known in self.schemas.items() if known == schema), len(self.schemas) + 1
        )
        self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def __call__(self, url: str, body: bytes | None) -> bytes:
        path = urlsplit(url).path
        self.asked.append(path)
        if self._trouble:
            raise self._trouble.pop(0)
        return json.dumps(self._answer(path.strip("/").split("/"), body)).encode()

    def _answer(self, parts: list[str], body: bytes | None) -> dict[str, Any]:
        if parts[:2] == ["schemas", "ids"] and body is None:
            if int(parts[2]) not in self.schemas:
                raise refusal(404)
            return self.schemas[int(parts[2])]
        assert parts[0] == "subjects"
        subject = unquote(parts[1])
        if body is None:
            return self.schemas[self.subjects[subject][int(parts[3]) - 1]]
        request = json.loads(body)
        kind, references = request.get("schemaType", "AVRO"), request.get("references")
        registration = {"schema": request["schema"]} | ({} if kind == "AVRO" else {"schemaType": kind})
        registration |= {"references": references} if references else {}
        known = [number for number in self.subjects.get(subject, ()) if self.schemas[number] == registration]
        if not known and parts[2:] == ["versions"]:
            if self.closed:
                raise refusal(409, '{"message": "not compatible with an earlier schema"}')
            known = [self.add(request["schema"], kind, references, subject)]
        if not known:
            raise refusal(404)
        return {"id": known[0], "version": self.subjects[subject].index(known[0]) + 1}

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Its URL; it answers by HTTP meanwhile."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(None)

            def do_POST(self) -> None:
                self._say(self.rfile.read(int(self.headers["Content-Length"])))

            def _say(self, body: bytes | None) -> None:
                try:
                    code, answer = 200, outer(self.path, body)
                except urllib.error.HTTPError as error:
                    with error:
                        code, answer = error.code, error.read()
                self.send_response(code)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, name="registry")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
