"""Which requests go through a proxy: those to services outside, and none to what is inside."""

from __future__ import annotations

import pytest

from firesteel.core.errors import ConfigurationError
from firesteel.core.proxies import http_parts, proxy_for, without_login

VARIABLES = [name for word in ("http", "https", "no", "all") for name in (f"{word}_proxy", f"{word}_proxy".upper())]
PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "proxied"),
    [
        ("https://s3.amazonaws.com", True), ("http://minio.example.org:9000", True), ("https://8.8.8.8", True),
        ("http://127.0.0.1:9000", False), ("http://localhost:9000", False), ("http://[::1]:9000", False),
        ("http://127.8.0.1", False), ("http://10.0.0.7:9000", False), ("http://192.168.1.1", False),
        ("http://169.254.169.254", False), ("http://minio:9000", False), ("http://minio.store.svc:9000", False),
        ("http://minio.store.svc.cluster.local:9000", False), ("http://registry.skipped.example:8081", False),
    ],
)  # fmt: skip
def test_the_environment_counts_for_what_is_outside(url: str, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", "elsewhere.example,.skipped.example")
    assert proxy_for(url) == (PROXY if proxied else None)


def test_an_option_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    assert proxy_for("https://s3.amazonaws.com", "direct") is None
    assert proxy_for("https://s3.amazonaws.com", "other:1") == "http://other:1"
    assert proxy_for("http://10.0.0.7:9000", "http://other:1") == "http://other:1"
    assert proxy_for("http://127.0.0.1:9000", "http://other:1") is None, "loopback never"
    with pytest.raises(ConfigurationError, match=r"the proxy socks5://other:1 for https://s3\.amazonaws\.com is none"):
        proxy_for("https://s3.amazonaws.com", "socks5://user:secret@other:1")
    assert without_login("http://user:secret@other:1") == "http://other:1"


@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        ("http://host", True), ("https://user:word@host:8081/a/b?c=d", True), ("HTTP://[::1]:80", True),
        ("host:80", False), ("ftp://host", False), ("http:///path", False), ("http://host:x", False),
        ("http://host:0", False), ("http://[::1", False), ("http://host/a b", False), ("http://host/\x7f", False),
    ],
)  # fmt: skip
def test_urls_that_can_be_asked_by_http(url: str, is_valid: bool) -> None:
    assert (http_parts(url) is not None) == is_valid
