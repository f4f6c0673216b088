"""How far the stages of a batch job are: pure functions of job archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from firesteel.graph.job_archive import STAGE_WORK
from firesteel.rest import types as t
from firesteel.rest.archive_cache import Archive
from firesteel.rest.findings import is_batch, readers, tasks_done

_LEAST_MS: Final = 1000
"""Tasks have to have run for so long in all before their rate is one."""
_LEAST_BYTES: Final = 4 << 20
"""A task reads ahead of its work by pieces of 256 KiB (``runtime.bounded.blobs``): once each has read so much, that is
little of it."""
_READ_FIRST: Final = frozenset({"HASH"})
"""Ship strategies whose readers read all of their input before they work on it, so that reading is no progress."""
_KNOWN_SHARE: Final = frozenset({"HASH", "REBALANCE", "FORWARD", "RESCALE", "SHUFFLE", "GLOBAL", "CUSTOM"})
"""Ship strategies by which each byte is read by one task."""


def stages(archive: Archive) -> dict[str, t.StageInfo]:
    """The stages of a batch job by vertex id; empty for other jobs."""
    if not is_batch(archive):
        return {}
    by_id = {vertex["id"]: vertex for vertex in archive["vertices"]}
    inputs = {node["id"]: node.get("inputs", ()) for node in archive["plan"]["nodes"]}
    read_by = readers(archive)
    return {vertex_id: _stage(vertex, inputs.get(vertex_id, ()), by_id, read_by) for vertex_id, vertex in by_id.items()}


def _stage(
    vertex: Mapping[str, Any],
    inputs: Any,
    by_id: Mapping[str, Mapping[str, Any]],
    read_by: Mapping[str, list[str]],
) -> t.StageInfo:
    done, total = tasks_done(vertex)
    work = vertex.get(STAGE_WORK)
    shown: t.StageInfo = {
        "tasks-done": done,
        "tasks": total,
        "spilled-bytes": 0 if work is None else work["spilled-bytes"],
        "shuffled-bytes": vertex["metrics"]["write-bytes"],
    }
    if vertex["status"] == "FINISHED":
        return {**shown, "percent": 100.0}
    if vertex["start-time"] < 0 or work is None:
        return shown
    input_bytes = _input_bytes(inputs, by_id, read_by)
    if input_bytes:
        reads_first = any(edge["ship_strategy"] in _READ_FIRST for edge in inputs)
        worked, left_ms = (_read_first if reads_first else _read_along)(input_bytes, work)
        if worked is not None:
            shown["percent"] = round(min(99.9, 100 * worked / input_bytes), 1)
        if left_ms is not None and left_ms >= 1:  # what has lasted longer than it should takes a time nobody knows
            shown["left-ms"] = round(left_ms)
    elif total > 1:
        shown["percent"] = round(min(99.9, 100 * done / total), 1)
    return shown


def _input_bytes(inputs: Any, by_id: Mapping[str, Mapping[str, Any]], read_by: Mapping[str, list[str]]) -> int | None:
    """What a stage has to read in all; None = that is not known: it is a source, or shares its input with others."""
    total = 0
    for edge in inputs:
        writer = by_id.get(edge["id"])
        alone = len(read_by.get(edge["id"], ())) == 1 and edge["ship_strategy"] in _KNOWN_SHARE
        if writer is None or not alone or writer["status"] != "FINISHED":
            return None
        total += writer["metrics"]["write-bytes"]
    return total or None


def _read_first(input_bytes: int, work: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Bytes that were worked through, and ms that are left, by the rate of the tasks that are done."""
    if not work["rate"] or work["task-ms"] < _LEAST_MS:
        return None, None
    rest_ms = max(0, input_bytes - work["read-bytes"]) / work["rate"]
    return work["worked-bytes"], max(
        work["longest-left-ms"], (work["left-of-running-ms"] + rest_ms) / max(1, work["running"])
    )


def _read_along(input_bytes: int, work: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The same where tasks work on each piece that they read: by the rate of all that have read much."""
    read = work["read-bytes"]
    if not work["running"] or read < _LEAST_BYTES * work["running"] or work["task-ms"] < _LEAST_MS:
        return None, None
    return read, max(0, input_bytes - read) * work["task-ms"] / read / work["running"]
