"""Makes pools of urllib3 whose connections go through a proxy."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from urllib3 import ProxyManager, make_headers

from firesteel.core.proxies import without_login


def proxy_pool(proxy: str, **arguments: Any) -> ProxyManager:
    """Make a pool whose connections go through a proxy, and log in there if the URL says so.

    Args:
        proxy: URL of the proxy, as ``proxy_for`` gives it.
        **arguments: arguments of a ``PoolManager``.
    """
    address = urlsplit(proxy)
    headers = None
    if address.username:
        login = f"{unquote(address.username)}:{unquote(address.password or '')}"
        headers = make_headers(proxy_basic_auth=login)
    return ProxyManager(without_login(proxy), proxy_headers=headers, **arguments)
