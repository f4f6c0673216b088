"""The REST answer about the size of a job's state, from job archives. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from firesteel.checkpoint.state_figures import STATES, OperatorFigures, StateFigures, compared
from firesteel.rest import checkpoint_types as c
from firesteel.rest.archive_cache import Archive
from firesteel.rest.checkpoint_views import NoCheckpointsError, checkpoint_statistics

_UNKNOWN: Final = -1
Record = Mapping[str, Any]


def state_sizes(archive: Archive, query: Mapping[str, Any]) -> c.StateSizes:
    """/jobs/:jobid/state: the states in a checkpoint, by operator, beside those in an earlier one.

    Without a choice this is the first that is known: from one checkpoint to the next sizes go up and down with what a
    backend does to its files.

    Raises:
        NoCheckpointsError: the job takes no checkpoints, or has no such one.
    """
    statistics = checkpoint_statistics(archive)
    known = {record["id"]: record for record in (*statistics["latest"].values(), *statistics["history"])}
    records = sorted(
        (record for record in known.values() if record["status"] == "COMPLETED" and STATES in record),
        key=lambda record: record["id"],
    )
    chosen = _chosen(records, int(query.get("checkpoint", _UNKNOWN)), records[-1] if records else None)
    earlier = [record for record in records if chosen is not None and record["id"] < chosen["id"]]
    base = _chosen(records, int(query.get("base", _UNKNOWN)), earlier[0] if earlier else None)
    operators: Mapping[str, Sequence[Any]] = statistics.get("operators", {})
    rows: list[Any] = []
    if chosen is not None:
        rows = compared(None if base is None else _figures(base, operators), _figures(chosen, operators))
    sizes = [{tuple(plain[:3]): plain[4] for plain in record[STATES]} for record in records]
    for row in rows:
        row["vertex-id"] = operators[row["id"]][0] if row["id"] in operators else None
        for state in row["states"]:
            state["sizes"] = [at.get((row["id"], state["name"], state["kind"])) for at in sizes]
    return {
        "backend": statistics["config"]["backend"],
        "checkpoint": None if chosen is None else _checkpoint(chosen),
        "base": None if base is None else _checkpoint(base),
        "checkpoints": [_checkpoint(record) for record in records],
        "operators": rows,
    }


def _chosen(records: Sequence[Record], checkpoint_id: int, otherwise: Record | None) -> Record | None:
    if checkpoint_id == _UNKNOWN:
        return otherwise
    for record in records:
        if record["id"] == checkpoint_id:
            return record
    ids = ", ".join(str(record["id"]) for record in records) or "none"
    raise NoCheckpointsError(f"The states in checkpoint {checkpoint_id} are not known; those of: {ids}.")


def _figures(record: Record, operators: Mapping[str, Sequence[Any]]) -> list[OperatorFigures]:
    """The operators in the order of the job, with their states by size."""
    states: dict[str, list[StateFigures]] = {}
    for plain in record[STATES]:
        figures = StateFigures.from_plain(plain)
        if figures is not None:
            states.setdefault(figures.operator_id, []).append(figures)
    order = {operator_id: number for number, operator_id in enumerate(operators)}
    shown = []
    for operator_id in sorted(states, key=lambda id_: order.get(id_, len(order))):
        rows = sorted(states[operator_id], key=lambda row: -(row.size or 0))
        _, name, uid = operators.get(operator_id, ("", operator_id, None))
        shown.append(OperatorFigures(operator_id, uid, name, sum(row.size or 0 for row in rows), tuple(rows)))
    return shown


def _checkpoint(record: Record) -> c.StateCheckpoint:
    return {
        "id": record["id"],
        "trigger_timestamp": record["trigger"],
        "is_savepoint": record.get("savepoint") is not None,
        "savepointFormat": record.get("savepoint"),
        "external_path": record["location"],
        "discarded": record["discarded"],
        "size": sum(plain[4] or 0 for plain in record[STATES]),
    }
