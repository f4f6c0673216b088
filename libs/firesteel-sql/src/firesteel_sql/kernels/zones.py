"""Time zones by the names that Java knows."""

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh", "Z": "UTC",
}  # fmt: skip


@lru_cache(256)
def zone_of(name: str) -> tzinfo:
    """The zone of a name: ``Europe/Berlin``, ``PST``, ``GMT-08:00``.

    Raises:
        ValueError: there is none.
    """
    offset = re.fullmatch(r"(?:GMT|UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", name)
    if offset is not None:
        sign = -1 if offset.group(1) == "-" else 1
        return timezone(sign * timedelta(hours=int(offset.group(2)), minutes=int(offset.group(3) or 0)))
    try:
        return ZoneInfo(_SHORT.get(name, name))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name}: write it as Europe/Berlin, UTC or GMT+01:00") from None
