"""Tests a coordination service against the contract of cells (``firesteel.ha.cells``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firesteel.core.errors import FencedError
from firesteel.ha.cells import Cells, Change, ChangedError, Put, Record, RemoveRecord, Unchanged
from firesteel.ha.retrieval import Leader
from firesteel.testing.rules import require, require_some

_CELL, _OTHER = "job-one", "job-other"


def check_cells(make: Callable[[], Cells]) -> None:
    """Check every rule of the contract.

    Args:
        make: makes cells of one cluster, empty at first; each call stands for another process of the cluster. Cells in
            memory may return the same object again.

    Raises:
        AssertionError: a rule is broken; the message says which.
    """
    first_process, second_process = make(), make()
    try:
        _check_epochs(first_process, second_process)
        _check_records(first_process, second_process)
    finally:
        first_process.close()
        second_process.close()


def _lead(cells: Cells, component: str) -> int:
    epoch = require_some(cells.campaign(component), f"nobody leads {component}, and yet it can't be led")
    return epoch


def _check_epochs(first_process: Cells, second_process: Cells) -> None:
    require(not first_process.exists(_CELL), "there is something of a cell that nobody has led")
    first = _lead(first_process, _CELL)
    require(second_process.campaign(_CELL) is None, "two lead at the same time")
    first_process.check(_CELL, first)
    first_process.announce(_CELL, Leader(first, "http://first:1", "token-1"))
    leader = second_process.leader(_CELL)
    require(leader == Leader(first, "http://first:1", "token-1"), f"{leader} is found")
    first_process.release(_CELL, first)
    first_process.release(_CELL, first)
    _refused(lambda: first_process.check(_CELL, first), FencedError, "leads")
    second = _lead(second_process, _CELL)
    require(second > first, f"the epoch fell from {first} to {second}")
    first_process.release(_CELL, first)
    second_process.check(_CELL, second)
    first_process.depose(_CELL)
    first_process.depose(_CELL)
    _refused(lambda: second_process.check(_CELL, second), FencedError, "leads")
    _refused(lambda: second_process.announce(_CELL, Leader(second, "http://x:1")), FencedError, "announces itself")
    third = _lead(first_process, _CELL)
    require(third > second, f"the epoch fell from {second} to {third}")
    first_process.release(_CELL, third)


def _check_records(first_process: Cells, second_process: Cells) -> None:
    epoch, independent = _lead(first_process, _CELL), _lead(second_process, _OTHER)
    require(first_process.names(_CELL) == [], "there are records before any was made")
    require(first_process.read(_CELL, "a") is None, "a record is read before it was made")
    first_process.change(_CELL, epoch, [Put("a", b"1", None), Put("b", b"", None)])
    a, b = _record(second_process, "a"), _record(second_process, "b")
    require(
        (a.value, b.value, second_process.names(_CELL)) == (b"1", b"", ["a", "b"]), "records are not as they were made"
    )
    require(second_process.names(_OTHER) == [], "cells share their records")
    first_process.change(_CELL, epoch, [Put("a", b"2", a.version), Unchanged("b", b.version)])
    newer = _record(first_process, "a")
    require(newer.value == b"2", "a record did not get its value")
    require(newer.version != a.version, "a record has changed and kept its version")
    wrong: dict[str, Sequence[Change]] = {
        "makes a record that there is": [Put("c", b"", None), Put("a", b"3", None)],
        "replaces a record that has changed": [Put("c", b"", None), Put("a", b"3", a.version)],
        "replaces a record that there is not": [Put("c", b"", None), Put("d", b"3", a.version)],
        "removes a record that has changed": [Put("c", b"", None), RemoveRecord("a", a.version)],
        "removes a record that there is not": [Put("c", b"", None), RemoveRecord("d", a.version)],
        "changes others though one is not as expected": [Unchanged("a", a.version), Put("c", b"", None)],
        "changes others though one is not there": [Unchanged("d", a.version), RemoveRecord("b", b.version)],
    }
    for action, changes in wrong.items():
        _refused(lambda changes=changes: first_process.change(_CELL, epoch, changes), ChangedError, action)  # type: ignore[misc]
        require(first_process.names(_CELL) == ["a", "b"], f"who {action} is refused, and something has changed")
        require(_record(first_process, "a") == newer, f"who {action} is refused, and something has changed")
    _refused(
        lambda: second_process.change(_CELL, independent + 7, [Put("c", b"", None)]), FencedError, "changes a record"
    )
    second_process.depose(_CELL)
    _refused(
        lambda: first_process.change(_CELL, epoch, [RemoveRecord("b", b.version)]), FencedError, "removes a record"
    )
    _refused(lambda: first_process.change(_CELL, epoch, [Put("a", b"9", None)]), FencedError, "makes a record")
    following = _lead(second_process, _CELL)
    _refused(lambda: first_process.change(_CELL, epoch, [Put("c", b"", None)]), FencedError, "makes a record")
    require(second_process.names(_CELL) == ["a", "b"], "a stale leader has changed something, or something is lost")
    second_process.change(
        _CELL, following, [RemoveRecord("b", b.version), Put("a", b"4", _record(second_process, "a").version)]
    )
    require(
        (first_process.names(_CELL), _record(first_process, "a").value) == (["a"], b"4"),
        "the next leader can't change records",
    )
    second_process.release(_CELL, following)
    require(first_process.exists(_CELL), "there is nothing of a cell with records")
    first_process.forget(_CELL)
    first_process.forget(_CELL)
    require(not second_process.exists(_CELL), "there is something of a cell that was forgotten")
    require(second_process.read(_CELL, "a") is None, "a cell that was forgotten has a record")
    last = _lead(first_process, _CELL)
    require(first_process.names(_CELL) == [], "a cell that was forgotten has records")
    first_process.release(_CELL, last)
    second_process.release(_OTHER, independent)


def _record(cells: Cells, name: str) -> Record:
    record = require_some(cells.read(_CELL, name), f"the record {name} is missing")
    return record


def _refused(call: Callable[[], object], error_type: type[Exception], action: str) -> None:
    try:
        call()
    except error_type:
        return
    raise AssertionError(f"somebody {action}, and nobody minds")
