"""Which requests to services outside of the cluster go through a proxy.

The variables ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` (or in small letters) of a process say it, as they do to
other programs. What is inside is asked directly whatever they say, for a proxy that leads to the internet leads to no
loopback address, no private network and no service of Kubernetes; so clusters whose hosts have these variables need
no list of their own names. The services of a cluster ask each other directly, too: ``aiohttp`` reads no variables
unless it is told to.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import urllib.request
from typing import Any
from urllib.parse import SplitResult, urlsplit

from firesteel.core.errors import ConfigurationError

__all__ = ["DIRECT", "http_parts", "opener_for", "proxy_for", "without_login"]

DIRECT = "direct"
"""Says that there is no proxy, whatever the environment says."""
_INSIDE = (".localhost", ".local", ".internal", ".svc", ".cluster.local")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")
"""Characters that ``http.client`` refuses, at each request."""


def proxy_for(url: str, configured: str | None = None) -> str | None:
    """The proxy by which a URL is asked, with its user and password; None = it is asked directly.

    Args:
        url: of the service.
        configured: a proxy that an option names, or ``direct``; None = the environment says it.

    Raises:
        ConfigurationError: it is no proxy for HTTP.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host):
        return None
    if configured is None:
        environment_proxies = urllib.request.getproxies_environment()
        configured = None if _is_inside(host) else environment_proxies.get(parts.scheme)
        if not configured or _is_bypassed(parts.netloc, environment_proxies):
            return None
    elif configured.strip().lower() == DIRECT:
        return None
    proxy = configured.strip()
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    address = urlsplit(proxy)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigurationError(
            f"the proxy {without_login(proxy)} for {parts.scheme}://{host} is none for HTTP: a URL is expected, as "
            "http://proxy.example:3128"
        )
    return proxy


def http_parts(url: str) -> SplitResult | None:
    """The parts of a URL that can be asked by HTTP or HTTPS; None if a text is no such URL."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # port or IPv6 address
        return None
    return parts if is_complete and _NOT_IN_URLS.search(url) is None else None


def without_login(proxy: str) -> str:
    """The URL of a proxy as people may see it."""
    scheme, _, rest = proxy.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}".removeprefix("://")


def opener_for(url: str, context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """What opens a URL in place of ``urllib.request.urlopen``."""
    proxy = proxy_for(url)
    # Without a handler of its own an opener reads the environment itself, and asks loopback addresses by the proxy.
    handlers: list[Any] = [urllib.request.ProxyHandler({} if proxy is None else {urlsplit(url).scheme: proxy})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _is_bypassed(netloc: str, proxies: dict[str, str]) -> bool:
    """Whether ``NO_PROXY`` names a host; the library's own reading of it, which its documentation does not name."""
    return bool(urllib.request.proxy_bypass_environment(netloc, proxies))  # type: ignore[attr-defined]


def _is_inside(host: str) -> bool:
    """Whether a name or address means something inside a network only."""
    address = _address_of(host)
    if address is not None:
        return address.is_private or address.is_link_local
    return "." not in host or host.rstrip(".").lower().endswith(_INSIDE)
