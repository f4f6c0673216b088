"""An object store in memory, in place of its client's HTTP pool, with faults that a real one makes by chance only."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree

import urllib3
from urllib3.response import BaseHTTPResponse, HTTPResponse

SMALLEST_PART = 80 << 10
Fault = Callable[["Request"], BaseHTTPResponse | None]
"""Raises, answers in place of the store, or gives None: then the store does."""


class Request:
    """What was asked.

    Attributes:
        verb: method, and what of it: ``PUT``, ``PUT part``, ``POST uploads``, ``GET list``, ….
        key: of the object, without the bucket.
    """

    def __init__(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.host, self.query = parts.netloc, dict(parse_qsl(parts.query, keep_blank_values=True))
        self.body, self.headers = body or b"", {name.lower(): value for name, value in headers.items()}
        self.bucket, _, self.key = unquote(parts.path).lstrip("/").partition("/")
        kinds = {
            "uploads": "uploads", "partNumber": "part", "uploadId": "upload", "list-type": "list", "delete": "delete"
        }  # fmt: skip
        kind = next((name for mark, name in kinds.items() if mark in self.query), "")
        self.verb = f"{method} {kind}".rstrip()
        self.method = method


class FakeStore:
    """The server.

    Attributes:
        objects: by bucket, by key.
        uploads: parts by number, of each upload: id -> (bucket, key, parts).
        requests: all that came.
        fault: asked first.
        lose_answers: of these verbs, once each: the store does it, and the answer is lost.
        page: keys in an answer to a listing.
        leaves_parts_out: an object may be made of some of the parts that came.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {"bucket": {}}
        self.uploads: dict[str, tuple[str, str, dict[int, bytes]]] = {}
        self.requests: list[Request] = []
        self.fault: Fault = lambda request: None
        self.lose_answers: list[str] = []
        self.page = 1000
        self.leaves_parts_out = False
        self.lock = threading.RLock()
        self.pools: list[dict[str, Any]] = []

    @property
    def keys(self) -> list[str]:
        """Of all objects in the bucket."""
        return sorted(self.objects["bucket"])

    def request_count(self, verb: str) -> int:
        return sum(request.verb == verb for request in self.requests)

    def pool(self, **settings: Any) -> urllib3.PoolManager:
        """What stands for the HTTP pool."""
        self.pools.append(settings)
        return _Pool(self)

    def answer(self, request: Request) -> BaseHTTPResponse:
        with self.lock:
            self.requests.append(request)
            fault_answer = self.fault(request)
            if fault_answer is not None:
                return fault_answer
            answer = self._do(request)
            if request.verb in self.lose_answers:
                self.lose_answers.remove(request.verb)
                raise urllib3.exceptions.ProtocolError(
                    "Connection aborted.", ConnectionResetError(104, "reset by peer")
                )
            return answer

    def _do(self, request: Request) -> BaseHTTPResponse:
        if request.bucket not in self.objects:
            return error(request, 404, "NoSuchBucket")
        objects = self.objects[request.bucket]
        match request.verb:
            case "PUT":
                if request.headers.get("if-none-match") == "*" and request.key in objects:
                    return error(request, 412, "PreconditionFailed")
                objects[request.key] = request.body
                return respond(200, headers={"ETag": '"tag"'})
            case "GET" | "HEAD" if request.key not in objects:
                return error(request, 404, "NoSuchKey")
            case "HEAD":
                return respond(200, headers={"Content-Length": str(len(objects[request.key]))})
            case "GET":
                return _read(request, objects[request.key])
            case "DELETE":
                objects.pop(request.key, None)
                return respond(204)
            case "POST delete":
                for element in ElementTree.fromstring(request.body).iter():
                    if element.tag.endswith("Key"):
                        objects.pop(element.text or "", None)
                return respond(200, b"<DeleteResult></DeleteResult>")
            case "GET list":
                return self._list(request, objects)
            case "POST uploads":
                upload = f"id/{len(self.uploads)}.{hashlib.md5(request.key.encode()).hexdigest()}"
                self.uploads[upload] = request.bucket, request.key, {}
                return respond(200, f"<R><UploadId>{upload}</UploadId></R>".encode())
            case "GET uploads":
                uploads = [name for name, (_, key, _) in self.uploads.items() if key == request.query["prefix"]]
                xml = [
                    f"<Upload><Key>{request.query['prefix']}</Key><UploadId>{name}</UploadId></Upload>"
                    for name in uploads
                ]
                return respond(
                    200, f"<R>{''.join(xml)}</R>".encode()
                )  # as MinIO, which lists uploads to whole keys only
        upload = request.query["uploadId"]
        if upload not in self.uploads:
            return error(request, 404, "NoSuchUpload")
        parts = self.uploads[upload][2]
        match request.verb:
            case "PUT part":
                parts[int(request.query["partNumber"])] = request.body
                return respond(200, headers={"ETag": f'"{len(request.body)}"'})
            case "DELETE upload":
                del self.uploads[upload]
                return respond(204)
            case "POST upload":
                named = [
                    int(element.text or "")
                    for element in ElementTree.fromstring(request.body).iter()
                    if "Number" in element.tag
                ]
                assert named == sorted(parts) or (self.leaves_parts_out and set(named) <= set(parts)), "other parts"
                assert all(len(parts[number]) >= SMALLEST_PART for number in named[:-1]), "a part is too small"
                objects[request.key] = b"".join(parts[number] for number in named)
                del self.uploads[upload]
                return respond(200, b"<R><ETag>whole</ETag></R>")
        raise AssertionError(request.verb)

    def _list(self, request: Request, objects: dict[str, bytes]) -> BaseHTTPResponse:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        after = request.query.get("continuation-token") or request.query.get("start-after", "")
        most = min(self.page, int(request.query.get("max-keys", "1000")))
        entries: dict[str, int | None] = {}
        for key in sorted(objects):
            if key.startswith(prefix):
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                entries[key if end < 0 else key[: end + 1]] = len(objects[key]) if end < 0 else None
        left = [name for name in sorted(entries) if name > after]
        xml = ["<R><Name>bucket</Name><EncodingType>url</EncodingType>"]
        for name in left[:most]:
            size = entries[name]
            if size is None:
                xml.append(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>")
            else:
                xml.append(f"<Contents><Key>{quote(name)}</Key><Size>{size}</Size></Contents>")
        if len(left) > most:
            xml.append(
                f"<NextContinuationToken>{left[most - 1]}</NextContinuationToken><IsTruncated>true</IsTruncated>"
            )
        return respond(200, "".join([*xml, "</R>"]).encode())


class _Pool(urllib3.PoolManager):
    def __init__(self, store: FakeStore) -> None:
        super().__init__()
        self._store = store

    def urlopen(  # type: ignore[override] # as the client calls it
        self, method: str, url: str, body: bytes | None = None, headers: Any = None, preload_content: bool = True
    ) -> BaseHTTPResponse:
        return self._store.answer(Request(method, url, body, dict(headers or {})))


def respond(
    status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, kind: str = "application/xml"
) -> BaseHTTPResponse:
    all_headers = {"Content-Type": kind, **(headers or {})}
    return HTTPResponse(io.BytesIO(body), headers=all_headers, status=status, preload_content=True)


def error(request: Request, status: int, code: str, message: str = "the message", **headers: str) -> BaseHTTPResponse:
    """An error of the store; one to HEAD has no text."""
    body = (
        b"" if request.method == "HEAD" else f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    )
    return respond(status, body, headers)


def _read(request: Request, data: bytes) -> BaseHTTPResponse:
    byte_range = request.headers.get("range")
    if byte_range is None:
        return respond(200, data)
    first, _, last = byte_range.removeprefix("bytes=").partition("-")
    start, end = int(first), min(len(data) - 1, int(last or len(data)))
    if start >= len(data):
        return error(request, 416, "InvalidRange")
    return respond(206, data[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(data)}"})
