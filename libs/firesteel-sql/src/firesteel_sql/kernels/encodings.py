"""Texts and bytes in other forms: hexadecimal, Base64, character sets, hashes, parts of URLs, addresses."""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote_plus

from firesteel_sql.kernels.definition import values_kernel
from firesteel_sql.kernels.java_regex import java_regex

_WIDE: Final = (1 << 64) - 1

bin_ = values_kernel(lambda number: format(number & _WIDE, "b"))
hex_of_number = values_kernel(lambda number: format(number & _WIDE, "X"))
hex_of_text = values_kernel(lambda text: text.encode().hex().upper())


def _unhex(text: str) -> bytes | None:
    # Of an odd number of digits, Flink takes the first one for itself, and gives 0 for it.
    if not re.fullmatch(r"[0-9a-fA-F]*", text, re.ASCII):
        return None
    return bytes.fromhex(text) if len(text) % 2 == 0 else b"\0" + bytes.fromhex(text[1:])


unhex = values_kernel(_unhex)


def _from_base64(text: str) -> str:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"'{text}' is no Base64") from None
    return data.decode("utf-8", "replace")


from_base64 = values_kernel(_from_base64)
to_base64 = values_kernel(
    lambda value: base64.b64encode(value.encode() if isinstance(value, str) else value).decode("ascii")
)

CHARACTER_SETS: Final = ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16")


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError(f"there is no character set {name}; there are {', '.join(CHARACTER_SETS)}") from None


def _encode(text: str, name: str) -> bytes:
    codec = _codec(name)
    if codec == "utf-16":
        return b"\xfe\xff" + text.encode("utf-16-be", "replace")
    return text.encode(codec, "replace")


def _decode(data: bytes, name: str) -> str:
    codec = _codec(name)
    if codec == "utf-16" and data[:2] not in (b"\xfe\xff", b"\xff\xfe"):
        codec = "utf-16-be"
    return data.decode(codec, "replace")


encode = values_kernel(_encode)
decode = values_kernel(_decode)


# -- hashes


def _hash(function: Callable[[bytes], Any]) -> Any:
    return values_kernel(lambda text: function(text.encode()).hexdigest())


md5 = _hash(lambda data: hashlib.md5(data, usedforsecurity=False))
sha1 = _hash(lambda data: hashlib.sha1(data, usedforsecurity=False))
sha224 = _hash(hashlib.sha224)
sha256 = _hash(hashlib.sha256)
sha384 = _hash(hashlib.sha384)
sha512 = _hash(hashlib.sha512)
_SHA2: Final = {224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384, 512: hashlib.sha512}


def _sha2(text: str, length: int) -> str:
    function = _SHA2.get(length)
    if function is None:
        raise ValueError(f"SHA2 has 224, 256, 384 or 512 bits, not {length}")
    return function(text.encode()).hexdigest()


sha2 = values_kernel(_sha2)


# -- URLs and addresses


url_encode = values_kernel(lambda text: quote_plus(text, safe="*").replace("~", "%7E"))


def _url_decode(text: str) -> str | None:
    if re.search("%(?![0-9a-fA-F]{2})", text, re.ASCII):
        return None
    data = re.sub(
        rb"%([0-9a-fA-F]{2})", lambda match: bytes.fromhex(match.group(1).decode()), text.encode().replace(b"+", b" ")
    )
    return data.decode("utf-8", "replace")


url_decode = values_kernel(_url_decode)

_URL: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_PROTOCOLS: Final = frozenset(("http", "https", "ftp", "file", "jar", "mailto", "jrt", "jmod"))


def _parse_url(url: str, part: str, key: str | None = None) -> str | None:
    match = _URL.fullmatch(url.strip())
    if match is None or match.group(1).lower() not in _PROTOCOLS:
        return None
    protocol, authority, path, query, anchor = match.groups()
    user, at, address = (authority or "").rpartition("@")
    if key is not None:
        if part != "QUERY" or query is None:
            return None
        values = (pair.partition("=") for pair in query.split("&"))
        return next((value for name, sign, value in values if sign and name == key), None)
    host = re.fullmatch(r"(\[[^]]*\]|[^:]*)(?::\d*)?", address)
    if host is None:
        return None
    match part:
        case "HOST":
            return host.group(1)
        case "PATH":
            return path
        case "QUERY":
            return query
        case "REF":
            return anchor
        case "PROTOCOL":
            return protocol.lower()
        case "AUTHORITY":
            return authority
        case "FILE":
            return path if query is None else f"{path}?{query}"
        case "USERINFO":
            return user if at else None
    return None


parse_url = values_kernel(_parse_url)


def _inet_aton(text: str) -> int | None:
    """The last part stands for the last byte, and missing bytes in front of it are 0: 127.1 is 127.0.0.1."""
    if not re.fullmatch(r"\d{1,3}(\.\d{1,3}){0,3}", text, re.ASCII):
        return None
    *front, last = map(int, text.split("."))
    if max(*front, last, 0) > 255:
        return None
    return sum(part << 8 * (3 - place) for place, part in enumerate(front)) + last


inet_aton = values_kernel(_inet_aton)
inet_ntoa = values_kernel(
    lambda number: ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)) if 0 <= number < 1 << 32 else None
)


def _str_to_map(text: str, pairs: str = ",", values: str = "=") -> list[tuple[str, str | None]]:
    """The pairs of a text; the separators are regular expressions."""
    if not text:
        return []
    entries: dict[str, str | None] = {}
    for pair in without_empty_end(java_regex(pairs).python.split(text)):
        key, *rest = java_regex(values).python.split(pair, maxsplit=1)
        entries[key] = rest[0] if rest else None
    return list(entries.items())


def without_empty_end(parts: list[str]) -> list[str]:
    """What Java's ``split`` gives: without the empty texts at the end."""
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


str_to_map = values_kernel(_str_to_map)
