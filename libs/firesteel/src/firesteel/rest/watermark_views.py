"""Who holds event time back, in words: from what the tasks of a job report about their watermarks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from firesteel.core.human_texts import duration_text
from firesteel.graph.job_archive import EVENT_TIME
from firesteel.rest import load_types as t
from firesteel.rest.archive_cache import Archive

STILL_MS: Final = 10_000
"""A watermark that stands still for so long while another one is ahead is worth a sentence."""
BEHIND_MS: Final = 60_000
"""So is one that is so far behind another one, even if it moves."""
_MIN_WATERMARK: Final = -(2**63)
_LONGEST_NAME: Final = 60
_EPOCH_BEGINS: Final = 86_400_000 * 365
"""Watermarks below are plain numbers of a program, not times: the difference of two of them is no duration."""


class _Place(NamedTuple):
    """A subtask, and what holds its event time back there."""

    vertex: Mapping[str, Any]
    subtask: int
    progress: Mapping[str, Any] | None


def watermark_holds(archive: Archive) -> list[t.WatermarkHold]:
    """The subtasks that wait for a watermark which stands still, or is far behind, while others are ahead.

    Of several vertices that wait for the same subtask only the first one is shown: the others follow from it.
    """
    vertices = {vertex["id"]: vertex for vertex in archive["vertices"]}
    inputs = {
        node["id"]: [row["id"] for row in node.get("inputs", ())] for node in archive.get("plan", {}).get("nodes", ())
    }
    holds: list[t.WatermarkHold] = []
    causes: set[tuple[str, int, str]] = set()
    for vertex in archive["vertices"]:
        event_time = vertex.get(EVENT_TIME, {})
        rows = [row for row in event_time.get("inputs", ()) if "watermark" in row]
        if not rows:
            continue
        slowest = min(rows, key=lambda row: row["watermark"])
        ahead = max(row["ahead"] for row in rows)
        # What a task makes itself stands for all that it reads.
        own = [row for row in rows if row["input"] == 0]
        if own:
            slowest, ahead = own[0], own[0]["ahead"]
        if not _is_held_back(slowest, ahead):
            continue
        cause = _cause(_Place(vertex, int(event_time["subtask"]), slowest), vertices, inputs)
        key = (cause.vertex["id"], cause.subtask, str((cause.progress or {}).get("split", "")))
        if key not in causes:
            causes.add(key)
            holds.append(
                {
                    "vertex": vertex["id"],
                    "subtask": int(event_time["subtask"]),
                    "cause": cause.vertex["id"],
                    "causeSubtask": cause.subtask,
                    "text": _sentence(vertex, slowest, ahead, cause, inputs),
                }
            )
    return holds


def _is_held_back(slowest: Mapping[str, Any], ahead: int) -> bool:
    watermark, still_ms = slowest["watermark"], slowest.get("still_ms", 0)
    if ahead <= watermark:
        return False
    is_far = _is_time(watermark) and _is_time(ahead) and ahead - watermark >= BEHIND_MS
    return bool(still_ms >= STILL_MS or is_far)


def _cause(place: _Place, vertices: Mapping[str, Mapping[str, Any]], inputs: Mapping[str, list[str]]) -> _Place:
    """Follow a watermark to the subtask that makes it: from sender to sender, by the slowest channel of each."""
    for _ in range(len(vertices)):
        progress = place.progress
        if progress is None or progress["input"] == 0 or progress.get("source") not in vertices:
            break
        vertex, subtask = vertices[progress["source"]], int(progress["subtask"])
        event_time = vertex.get(EVENT_TIME, {})
        rows = [row for row in event_time.get("inputs", ()) if "watermark" in row]
        if event_time.get("subtask") != subtask or not rows:  # nothing is known of that subtask but its watermark
            return _Place(vertex, subtask, None)
        own = [row for row in rows if row["input"] == 0]
        place = _Place(vertex, subtask, own[0] if own else min(rows, key=lambda row: row["watermark"]))
    return place


def _sentence(
    vertex: Mapping[str, Any],
    slowest: Mapping[str, Any],
    ahead: int,
    cause: _Place,
    inputs: Mapping[str, list[str]],
) -> str:
    progress = cause.progress or {}
    split = progress.get("split")
    name = f"{_name(cause.vertex)}, subtask {cause.subtask + 1}/{cause.vertex['parallelism']},"
    if cause.vertex is vertex and slowest["input"] == 0:
        begin = f"{name} waits for its split {_short(str(split))!r}"
    else:
        begin = f"{_name(vertex)} waits for {name}" + (f" split {_short(str(split))!r}" if split else "")
        begin = begin.removesuffix(",")
    return f"{begin}: {_watermark(slowest, ahead)}{_records(cause, inputs)}."


def _watermark(slowest: Mapping[str, Any], ahead: int) -> str:
    watermark = slowest["watermark"]
    if watermark == _MIN_WATERMARK:
        return f"it has sent no watermark for {duration_text(slowest.get('still_ms', 0))}"
    still = slowest.get("still_ms", 0)
    stands = f", and has not moved for {duration_text(still)}" if still >= STILL_MS else ""
    if _is_time(watermark) and _is_time(ahead):
        return f"its watermark is {duration_text(ahead - watermark)} behind the others{stands}"
    return f"its watermark is {watermark}, that of others {ahead}{stands}"


def _records(cause: _Place, inputs: Mapping[str, list[str]]) -> str:
    """What is known of the records of the subtask that makes the watermark, and what helps."""
    progress = cause.progress
    if progress is None and EVENT_TIME not in cause.vertex and not inputs.get(cause.vertex["id"]):
        return "; it has no watermark strategy, so that event time never advances there"
    if progress is None or progress["input"] != 0:
        return ""
    if not progress["members"]:
        return f"; it has no split to read{_advice(progress)}"
    silent_ms = progress.get("silent_ms", 0)
    if silent_ms < 0:
        return f", no records yet{_advice(progress)}"
    return f", no records for {duration_text(silent_ms)}{_advice(progress)}" if silent_ms >= STILL_MS else ""


def _advice(progress: Mapping[str, Any]) -> str:
    return "" if progress.get("idleness") else " (WatermarkStrategy.with_idleness() leaves out inputs without records)"


def _is_time(watermark: int) -> bool:
    return watermark > _EPOCH_BEGINS


def _name(vertex: Mapping[str, Any]) -> str:
    """The first operator of a vertex."""
    kind, colon, name = vertex["name"].partition(" -> ")[0].partition("Source: ")
    return f"source {_short(name)!r}" if colon and not kind else _short(kind + colon + name)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
