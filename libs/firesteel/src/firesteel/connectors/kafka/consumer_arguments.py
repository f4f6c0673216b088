"""Temporary: until the module of properties is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.core.errors import ProgramError

_NAMES = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "group.id": ("group_id", str),
    "client.id": ("client_id", str),
    "isolation.level": ("isolation_level", str),
    "fetch.min.bytes": ("fetch_min_bytes", int),
    "fetch.max.bytes": ("fetch_max_bytes", int),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", int),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", int),
    "request.timeout.ms": ("request_timeout_ms", int),
    "check.crcs": ("check_crcs", lambda text: text == "true"),
}


def consumer_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for key, value in properties.items():
        if key not in _NAMES:
            raise ProgramError(f"{key} is not known")
        name, make = _NAMES[key]
        found[name] = make(value)
    return found
