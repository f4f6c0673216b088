"""Flink's text forms of option values: durations, memory sizes, booleans, lists and maps.

Each ``parse_…`` takes text or the Python value itself and raises ``ValueError`` with what was expected.
``show_memory`` writes the text that ``parse_memory`` reads back;
``firesteel.core.option_texts`` writes those of the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from firesteel.core.option_texts import show

_NANOS_OF = {
    **dict.fromkeys(("d", "day", "days"), 86_400 * 10**9),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * 10**9),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * 10**9),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 10**9),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 10**6),
    **dict.fromkeys(("µs", "us", "micro", "micros", "microsecond", "microseconds"), 10**3),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}
_BYTES_OF = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibytes"), 1 << 40),
}
_NUMBER_AND_UNIT = re.compile(r"(\d+)\s*([^\W\d_]*)")
_PORTS = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?")
_ISO = re.compile(
    r"(-)?P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_duration(raw: Any) -> timedelta:
    """``100 ms``, ``1 min``, ``PT0.1S``, a number (milliseconds) or a ``timedelta``; whole microseconds."""
    if isinstance(raw, timedelta):
        return raw
    text = str(raw).strip()
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match and not isinstance(raw, bool):
        unit = _NANOS_OF.get(match[2].lower())
        if unit is not None:
            return timedelta(microseconds=int(match[1]) * unit // 1000)
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()[1:]):
        sign, days, hours, minutes, seconds, fraction = iso.groups()
        if not sign:
            return timedelta(
                days=int(days or 0),
                hours=int(hours or 0),
                minutes=int(minutes or 0),
                seconds=int(seconds or 0),
                microseconds=int((fraction or "").ljust(6, "0")[:6]),
            )
    raise ValueError("a duration such as '100 ms', '10 s', '1 min' or 'PT0.1S' (a bare number is milliseconds)")


def parse_memory(raw: Any) -> int:
    """``64mb``, ``1 gb``, ``512 bytes`` or a number of bytes. Units are powers of 1024."""
    match = _NUMBER_AND_UNIT.fullmatch(str(raw).strip())
    if match and not isinstance(raw, bool):
        unit = _BYTES_OF.get(match[2].lower())
        if unit is not None:
            return int(match[1]) * unit
    raise ValueError("a memory size such as '64mb', '1 gb' or '512 kb' (a bare number is bytes)")


def show_memory(value: int) -> str:
    """The largest unit that divides the size: ``64 mb``."""
    for unit, size in (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
        if value and value % size == 0:
            return f"{value // size} {unit}"
    return f"{value} bytes"


def parse_bool(raw: Any) -> bool:
    """``true`` or ``false`` in any case."""
    if isinstance(raw, bool):
        return raw
    text = str(raw).strip().lower()
    if text in ("true", "false"):
        return text == "true"
    raise ValueError("true or false")


def parse_int(raw: Any) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and re.fullmatch(r"[+-]?\d+", raw.strip()):
        return int(raw)
    raise ValueError("a whole number")


def parse_float(raw: Any) -> float:
    try:
        if not isinstance(raw, bool):
            return float(raw)
    except (TypeError, ValueError):
        pass
    raise ValueError("a number")


def parse_str(raw: Any) -> str:
    if isinstance(raw, (list, tuple, Mapping)):
        raise ValueError("one value, not a list or map")
    return show(raw)


def parse_list(raw: Any) -> tuple[str, ...]:
    """``[a, b]``, ``a;b`` or a list."""
    if isinstance(raw, (list, tuple)):
        return tuple(map(show, raw))
    if isinstance(raw, Mapping):
        raise ValueError("a list such as '[a, b]' or 'a;b'")
    text = str(raw).strip()
    parts = text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else text.split(";")
    return tuple(part.strip().strip("'\"") for part in parts if part.strip())


def parse_ports(raw: Any) -> tuple[int, ...]:
    """``8081``, ``8081-8090``, ``8081,8085-8090`` or a list of these; in this order, each once."""
    parts = [part for text in (raw if isinstance(raw, (list, tuple)) else [raw]) for part in str(text).split(",")]
    ports: dict[int, None] = {}
    for part in parts:
        match = _PORTS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= first <= last <= 65535:
            raise ValueError("ports such as 8081, 8081-8090 or 8081,8085-8090")
        ports.update(dict.fromkeys(range(first, last + 1)))
    return tuple(ports)


def parse_map(raw: Any) -> dict[str, str]:
    """``{a: b, c: d}``, ``a:b,c:d`` or a dict."""
    if isinstance(raw, Mapping):
        return {str(key): show(value) for key, value in raw.items()}
    text = str(raw).strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if all(":" in entry for entry in entries):
        pairs = (entry.split(":", 1) for entry in entries)
        return {key.strip().strip("'\""): value.strip().strip("'\"") for key, value in pairs}
    raise ValueError("a map such as '{a: b, c: d}' or 'a:b,c:d'")
