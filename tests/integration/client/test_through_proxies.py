"""Object stores and other services outside are asked through a proxy, and nothing that is inside."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from firesteel.checkpoint.places import ObjectPlace
from firesteel.client.rest_client import RestClient
from firesteel.config import Settings
from firesteel.core.errors import CheckpointStorageError
from firesteel.core.proxies import opener_for
from firesteel_formats.schema_registry import SchemaRegistry
from firesteel_s3.client import S3Client

VARIABLES = [name for word in ("http", "https", "no", "all") for name in (f"{word}_proxy", f"{word}_proxy".upper())]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


class ForwardProxy:
    """Answers in place of the servers behind it, as an object store with one object, and refuses tunnels."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.requests.append((self.command, self.path, self.headers.get("Proxy-Authorization")))
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"data")

            def do_CONNECT(self) -> None:
                proxy.requests.append((self.command, self.path, self.headers.get("Proxy-Authorization")))
                self.send_error(403, "not for you")

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    running = ForwardProxy()
    try:
        yield running
    finally:
        running.close()


def client(endpoint: str, **more: str) -> S3Client:
    settings = {"s3.endpoint": endpoint, "s3.access-key": "a", "s3.secret-key": "b", "s3.attempts.maximum": "1"}
    return S3Client(Settings({**settings, **{name.replace("__", "."): text for name, text in more.items()}}))


def test_an_object_store_is_asked_by_the_proxy_of_the_environment(
    proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    assert client("http://store.example:9000").get(ObjectPlace("bucket", "key"))[0] == b"data"
    assert proxy.requests == [("GET", "http://store.example:9000/bucket/key", None)]


def test_an_object_store_is_asked_by_the_proxy_of_the_option(proxy: ForwardProxy) -> None:
    url = proxy.url.replace("http://", "http://me:s%40cret@")
    store = client("http://store.example:9000", firesteel__s3__proxy=url)
    assert store.get(ObjectPlace("bucket", "key"))[0] == b"data"
    expected = "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert proxy.requests == [("GET", "http://store.example:9000/bucket/key", expected)]


def test_a_store_with_tls_is_asked_by_a_tunnel_and_errors_name_the_proxy(proxy: ForwardProxy) -> None:
    store = client("https://store.example", firesteel__s3__proxy=proxy.url.replace("//", "//me:secret@"))
    with pytest.raises(CheckpointStorageError, match=rf"through the proxy {proxy.url}.*403") as raised:
        store.get(ObjectPlace("bucket", "key"))
    assert "secret" not in str(raised.value)
    assert [request[:2] for request in proxy.requests] == [("CONNECT", "store.example:443")]


def test_a_proxy_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    running = ForwardProxy()
    running.close()
    monkeypatch.setenv("HTTP_PROXY", running.url)
    with pytest.raises(CheckpointStorageError, match=f"through the proxy {running.url} .*HTTPS_PROXY"):
        client("http://store.example:9000").get(ObjectPlace("bucket", "key"))


def test_a_local_store_is_asked_directly(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is the same one, and sees that no proxy was meant."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert client(proxy.url).get(ObjectPlace("bucket", "key"))[0] == b"data"
    with opener_for(proxy.url).open(f"{proxy.url}/registry", timeout=5) as answer:
        assert answer.read() == b"data"
    assert SchemaRegistry(proxy.url)._get(f"{proxy.url}/subjects", None) == b"data"
    assert [request[1] for request in proxy.requests] == ["/bucket/key", "/registry", "/subjects"]


def test_an_opener_goes_by_the_proxy(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    url = "http://registry.example:8081/subjects"
    with opener_for(url).open(url, timeout=5) as answer:
        assert answer.read() == b"data"
    assert proxy.requests == [("GET", url, None)]


def test_the_cluster_is_asked_directly(proxy: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def ask() -> tuple[int, bytes]:
        rest = RestClient(proxy.url, None)
        try:
            status, body, _ = await rest._once("GET", "/config", None, 5.0)
        finally:
            await rest.close()
        return status, body

    assert asyncio.run(ask()) == (200, b"data")
