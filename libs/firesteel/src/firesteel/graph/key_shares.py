"""The largest key of what a vertex reads, without its name: from what the tasks in front of it report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

__all__ = ["KeyShare", "key_shares_in", "largest_key"]

_MOST: Final = 100
"""Outputs of a task whose keys are looked at."""


class KeyShare(NamedTuple):
    """The largest key that a task sends over an edge (``firesteel.functions.metrics.HOT_KEYS``).

    Attributes:
        target: id of the vertex that reads.
        share: of the records that have this key, 0 to 1.
        subtask: that gets them.
        records: about the number of records that the task has sent in the last minute.
    """

    target: str
    share: float
    subtask: int
    records: float


def key_shares_in(report: Any) -> tuple[KeyShare, ...]:
    """The keys in a task's report, which comes from a slot, where user code runs: what does not fit is dropped."""
    if not isinstance(report, list):
        return ()
    shares: list[KeyShare] = []
    for row in islice(report, _MOST):
        if not isinstance(row, Mapping) or not isinstance(row.get("target"), str):
            continue
        share, subtask, records = _number(row.get("share")), row.get("subtask"), _number(row.get("records"))
        if share is not None and isinstance(subtask, int) and records is not None:
            shares.append(KeyShare(row["target"], min(1.0, max(0.0, share)), subtask, max(0.0, records)))
    return tuple(shares)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def largest_key(shares: Iterable[KeyShare]) -> dict[str, Any] | None:
    """The subtask that gets the largest key of all senders, and that key's share of all records.

    The largest keys of two senders are taken as the same key if they go to the same subtask.
    """
    by_subtask: dict[int, float] = {}
    records = 0.0
    for key in shares:
        records += key.records
        by_subtask[key.subtask] = by_subtask.get(key.subtask, 0.0) + key.share * key.records
    if not records:
        return None
    subtask = max(by_subtask, key=by_subtask.__getitem__)
    return {"subtask": subtask, "value": round(by_subtask[subtask] / records, 4)}
