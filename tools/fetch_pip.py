"""Fetches the locked pip wheel from the package index, for a Python that has neither pip nor ensurepip."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import os
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path


class NoIndexError(Exception):
    """The index cannot be reached or does not have the wheel; its text says which."""


class _Links(html.parser.HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value for name, value in attrs if tag == "a" and name == "href" and value]


def fetch_pip(lock_file: Path, folder: Path) -> Path:
    """Downloads the wheel into `folder` and returns its path; a wheel can be run without being installed.

    Raises:
        NoIndexError: no index, no such wheel, or one whose hash is not locked.
    """
    lock = lock_file.read_text()
    pinned = re.search(r"^pip==(\S+)((?:.*\\\n)*.*)", lock, re.M)
    if pinned is None:
        raise NoIndexError(f"{lock_file} does not name pip")
    name = f"pip-{pinned[1]}-py3-none-any.whl"
    hashes = set(re.findall(r"sha256:([0-9a-f]{64})", pinned[2]))
    data = _from_folders(name) or _from_index(name)
    if hashlib.sha256(data).hexdigest() not in hashes:
        raise NoIndexError(f"offers a {name} that does not have the locked hash and therefore")
    wheel = folder / name
    wheel.write_bytes(data)
    return wheel


def _from_folders(name: str) -> bytes | None:
    for folder in os.environ.get("PIP_FIND_LINKS", "").split():
        path = Path(folder.removeprefix("file://")) / name
        if path.is_file():
            return path.read_bytes()
    return None


def _from_index(name: str) -> bytes:
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    host = urllib.parse.urlsplit(index).netloc.rpartition("@")[2]
    try:
        page_url = f"{index}/pip/"
        page = _Links()
        page.feed(_get(page_url).decode())
        for target in page.targets:
            url = urllib.parse.urldefrag(urllib.parse.urljoin(page_url, target))[0]
            if url.rpartition("/")[2] == name:
                return _get(url)
    except (OSError, ValueError) as error:
        raise NoIndexError(host) from error
    raise NoIndexError(host)


def _get(url: str) -> bytes:
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(url.replace(f"{parts.username}:{parts.password}@", "", 1))
    if parts.username:
        user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        data: bytes = answer.read()
    return data
