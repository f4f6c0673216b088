"""Connections of urllib3 through a proxy."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from urllib3 import ProxyManager, make_headers

from firesteel.core.proxies import without_login


def proxy_pool(proxy: str, **arguments: Any) -> ProxyManager:
    """A pool of urllib3 whose connections go through a proxy.

    Args:
        proxy: of ``proxy_for``.
        **arguments: those of a ``PoolManager``.
    """
    address = urlsplit(proxy)
    headers = None
    if address.username:
        login = f"{unquote(address.username)}:{unquote(address.password or '')}"
        headers = make_headers(proxy_basic_auth=login)
    return ProxyManager(without_login(proxy), proxy_headers=headers, **arguments)
