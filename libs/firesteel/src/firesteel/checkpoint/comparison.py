"""Compares two savepoints or checkpoints, by operator and state, for ``firesteel savepoint compare``.

Chunks are read and counted; nothing is unpickled. Of state in files of a backend only the size of all of it is known.
"""

from __future__ import annotations

from typing import Any, Final

from firesteel.checkpoint import savepoints
from firesteel.checkpoint.reader import Savepoint, SavepointOperator, read_savepoint, utc_text
from firesteel.checkpoint.state_figures import OperatorFigures, StateFigures, compared, other_figures, summed
from firesteel.config import Settings

_UNKNOWN: Final = "?"
_ROW: Final = "  {:<30} {:<14} {:<7} {:>12} {:>12} {:>14} {:>14}"


def compare(before: str, after: str, settings: Settings | None = None) -> dict[str, Any]:
    """Compare two savepoints or checkpoints, as plain data; operators are matched by uid, or by id without one.

    Args:
        before, after: paths of their directories, or of their ``_metadata``.
        settings: configuration with ``s3.*``, for savepoints in an object store.

    Raises:
        CheckpointError: one of them does not exist, or is damaged.
        ConfigurationError: a path is malformed, or the settings of its object store are wrong.
    """
    first, second = read_savepoint(before, settings), read_savepoint(after, settings)
    return {
        "before": _description(first),
        "after": _description(second),
        "operators": compared(_figures(first), _figures(second)),
    }


def _description(savepoint: Savepoint) -> dict[str, Any]:
    metadata = savepoint.metadata
    return {
        "path": savepoint.path,
        "type": "checkpoint" if savepoints.info_of(metadata) is None else "savepoint",
        "checkpoint-id": metadata.checkpoint_id,
        "job-name": str(metadata.properties.get("job_name", "")),
        "timestamp": metadata.timestamp_ms,
        "size": metadata.size,
    }


def _figures(savepoint: Savepoint) -> list[OperatorFigures]:
    return [_operator_figures(operator) for operator in savepoint.operators.values() if operator.written.has_state]


def _operator_figures(operator: SavepointOperator) -> OperatorFigures:
    id_, subtasks = operator.operator_id, operator.written.subtasks.values()
    states = [
        StateFigures(
            id_, size.name, size.kind, None if size.in_files else size.entries, None if size.in_files else size.bytes
        )
        for size in operator.sizes()
    ]
    states += summed(figures for subtask in subtasks for figures in other_figures(id_, subtask))
    splits = sum(figures.size or 0 for figures in states if figures.kind == "splits")  # they have no handle
    size = splits + sum(handle.size for subtask in subtasks for handle in subtask.handles())
    return OperatorFigures(id_, operator.uid, operator.name, size, tuple(states))


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """Return what ``compare`` returns as lines of text."""
    before, after = comparison["before"], comparison["after"]
    lines = [_line(word, snapshot) for word, snapshot in (("before", before), ("after ", after))]
    ms = after["timestamp"] - before["timestamp"]
    growth = _signed(before["size"], after["size"])
    minutes = f" ({(after['size'] - before['size']) / ms * 60_000:+,.0f} a minute)" if ms >= 1000 else ""
    lines.append(f"in all {growth} bytes{minutes}")
    for operator in comparison["operators"]:
        uid = f"uid {operator['uid']!r}" if operator["uid"] else "no uid"
        sizes = _pair(operator["base-size"], operator["size"])
        lines += ["", f"{operator['name']} ({uid}): {operator['change']}, {sizes} bytes"]
        if operator["states"]:
            lines.append(_ROW.format("state", "kind", "", "entries", "change", "bytes", "change"))
        for state in operator["states"]:
            entries, size = state["entries"], state["size"]
            if entries is None and size is None and state["change"] in (None, "new"):
                lines.append(f"  {state['name']:<30} {state['kind']:<12} in files of the state backend")
                continue
            more_entries, more_bytes = _signed(state["base-entries"], entries), _signed(state["base-size"], size)
            numbers = _number(entries), more_entries, _number(size), more_bytes
            lines.append(_ROW.format(state["name"], state["kind"], state["change"] or _UNKNOWN, *numbers))
    return lines


def _line(word: str, snapshot: dict[str, Any]) -> str:
    name = f"{snapshot['type']} {snapshot['checkpoint-id']} of {snapshot['job-name'] or 'an unknown job'}"
    return f"{word} {name}, {utc_text(snapshot['timestamp'])}, {snapshot['size']:,} bytes: {snapshot['path']}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _signed(before: int | None, after: int | None) -> str:
    return "-" if before is None and after is None else f"{(after or 0) - (before or 0):+,}"


def _pair(before: int | None, after: int | None) -> str:
    return f"{_number(before)} -> {_number(after)}"
