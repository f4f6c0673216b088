"""What the recipes should give, in plain Python over the same lines."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
GAP = 30 * 60


def texts(folder: Path) -> list[str]:
    """The lines of all visible files of a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def records(folder: Path) -> list[Any]:
    """The lines as JSON, in an order of their own."""
    return sorted((json.loads(line) for line in texts(folder)), key=lambda record: json.dumps(record, sort_keys=True))


def as_dicts(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects."""
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def seconds(text: Any) -> float | None:
    """A time of a record; None where it has none."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


def visits(lines: Iterable[str]) -> list[Any]:
    """Sessions of users with a gap of half an hour; nothing is late."""
    clicks: dict[str, list[tuple[float, str, dict[str, Any]]]] = {}
    for click in as_dicts(lines):
        at = seconds(click.get("time"))
        if click.get("user") is not None and at is not None:
            clicks.setdefault(click["user"], []).append((at, click["id"], click))
    results = []
    for user, entries in clicks.items():
        entries.sort(key=lambda entry: entry[:2])
        sessions = [[entries[0]]]
        for entry in entries[1:]:
            if entry[0] - sessions[-1][-1][0] > GAP:
                sessions.append([])
            sessions[-1].append(entry)
        for session in sessions:
            first, last = session[0][2], session[-1][2]
            span = {"user": user, "from": first["time"], "to": last["time"], "clicks": len(session)}
            results.append({**span, "entry": first["page"], "exit": last["page"]})
    return sorted(results, key=lambda record: json.dumps(record, sort_keys=True))


def alerts(lines: Iterable[str], silence: float = 120) -> list[Any]:
    """Gaps of each machine, the one at the end of the input included."""
    beats: dict[str, list[float]] = {}
    for beat in as_dicts(lines):
        at = seconds(beat.get("time"))
        if beat.get("machine") and at is not None:
            beats.setdefault(beat["machine"], []).append(at)
    results = []
    for machine, times in beats.items():
        times.sort()
        for before, after in zip(times, [*times[1:], math.inf], strict=True):
            if after - before > silence:
                results.append({"machine": machine, "state": "silent", "since": clock(before)})
                if after < math.inf:
                    results.append({"machine": machine, "state": "back", "since": clock(after)})
    return sorted(results, key=lambda record: json.dumps(record, sort_keys=True))


def clock(epoch_seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(epoch_seconds, datetime.UTC):%FT%TZ}"


def score(flight: dict[str, Any], model: dict[str, Any]) -> float | None:
    """How likely a flight is to be late, feature by feature; None if one is missing."""
    total = model["bias"]
    for name, mean, scale, weight in zip(
        *(model[key] for key in ("features", "mean", "scale", "weights")), strict=True
    ):
        if flight[name] in ("NA", ""):
            return None
        total += (float(flight[name]) - mean) / scale * weight
    return round(1 / (1 + math.exp(-total)), 4)
