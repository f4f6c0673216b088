"""The dashboard's files: built from ``services/dispatcher/web``, kept in this package, given to every browser.

The files hold nothing of the cluster, so they need no token. What they show comes from the REST API, as for any client.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from aiohttp import web

TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
FOLDER: Final = "dashboard"
"""Folder of the files, in this package and in the API; only ``index.html`` is at ``/``."""
SECURITY: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each file: a browser runs only our own files, and makes no request to other hosts."""


@dataclass(frozen=True)
class StaticFile:
    """A file of the dashboard.

    Attributes:
        body: content.
        packed: content, compressed with gzip.
        content_type: media type.
        tag: entity tag of this content.
    """

    body: bytes
    packed: bytes
    content_type: str
    tag: str

    @classmethod
    def of(cls, body: bytes, content_type: str) -> StaticFile:
        """A file with this content."""
        return cls(body, gzip.compress(body, 9, mtime=0), content_type, f'"{hashlib.sha256(body).hexdigest()[:20]}"')

    def answer(self, request: web.Request) -> web.Response:
        """The answer to a browser; 304 if it has this content already."""
        headers = {**SECURITY, "ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if self.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(body=self.packed, content_type=self.content_type, charset="utf-8", headers=headers)
        return web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)


def read_files() -> dict[str, StaticFile]:
    """All files by their paths in the API."""
    static_files = {}
    for file in (files(__package__) / FOLDER).iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/{FOLDER}/{file.name}"
            static_files[path] = StaticFile.of(file.read_bytes(), kind)
    return static_files


def dashboard_routes() -> list[web.RouteDef]:
    """A route for each file."""
    return [_route(path, file) for path, file in read_files().items()]


def _route(path: str, file: StaticFile) -> web.RouteDef:
    async def give(request: web.Request) -> web.StreamResponse:
        return file.answer(request)

    return web.get(path, give, allow_head=False)
