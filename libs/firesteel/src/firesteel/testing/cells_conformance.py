"""Holds a coordination service against the contract of cells (``firesteel.ha.cells``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firesteel.core.errors import FencedError
from firesteel.ha.cells import Cells, Change, ChangedError, Put, Record, RemoveRecord, Unchanged
from firesteel.ha.retrieval import Leader
from firesteel.testing.rules import require, require_some

_CELL, _OTHER = "job-one", "job-other"


def check_cells(make: Callable[[], Cells]) -> None:
    """Try cells against all that the contract says.

    Args:
        make: cells of one empty cluster; each call stands for another process of it. Those of one process may give the
            same object again.

    Raises:
        AssertionError: they break the contract; the message says how.
    """
    one, other = make(), make()
    try:
        _check_epochs(one, other)
        _check_records(one, other)
    finally:
        one.close()
        other.close()


def _lead(cells: Cells, component: str) -> int:
    epoch = require_some(cells.campaign(component), f"nobody leads {component}, and yet it can't be led")
    return epoch


def _check_epochs(one: Cells, other: Cells) -> None:
    require(not one.exists(_CELL), "there is something of a cell that nobody has led")
    first = _lead(one, _CELL)
    require(other.campaign(_CELL) is None, "two lead at the same time")
    one.check(_CELL, first)
    one.announce(_CELL, Leader(first, "http://first:1", "token-1"))
    leader = other.leader(_CELL)
    require(leader == Leader(first, "http://first:1", "token-1"), f"{leader} is found")
    one.release(_CELL, first)
    one.release(_CELL, first)
    _refused(lambda: one.check(_CELL, first), FencedError, "leads")
    second = _lead(other, _CELL)
    require(second > first, f"the epoch fell from {first} to {second}")
    one.release(_CELL, first)
    other.check(_CELL, second)
    one.depose(_CELL)
    one.depose(_CELL)
    _refused(lambda: other.check(_CELL, second), FencedError, "leads")
    _refused(lambda: other.announce(_CELL, Leader(second, "http://x:1")), FencedError, "announces itself")
    third = _lead(one, _CELL)
    require(third > second, f"the epoch fell from {second} to {third}")
    one.release(_CELL, third)


def _check_records(one: Cells, other: Cells) -> None:
    epoch, independent = _lead(one, _CELL), _lead(other, _OTHER)
    require(one.names(_CELL) == [], "there are records before any was made")
    require(one.read(_CELL, "a") is None, "a record is read before it was made")
    one.change(_CELL, epoch, [Put("a", b"1", None), Put("b", b"", None)])
    a, b = _record(other, "a"), _record(other, "b")
    require((a.value, b.value, other.names(_CELL)) == (b"1", b"", ["a", "b"]), "records are not as they were made")
    require(other.names(_OTHER) == [], "cells share their records")
    one.change(_CELL, epoch, [Put("a", b"2", a.version), Unchanged("b", b.version)])
    newer = _record(one, "a")
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
    for what, changes in wrong.items():
        _refused(lambda changes=changes: one.change(_CELL, epoch, changes), ChangedError, what)  # type: ignore[misc]
        require(one.names(_CELL) == ["a", "b"], f"who {what} is refused, and something has changed")
        require(_record(one, "a") == newer, f"who {what} is refused, and something has changed")
    _refused(lambda: other.change(_CELL, independent + 7, [Put("c", b"", None)]), FencedError, "changes a record")
    other.depose(_CELL)
    _refused(lambda: one.change(_CELL, epoch, [RemoveRecord("b", b.version)]), FencedError, "removes a record")
    _refused(lambda: one.change(_CELL, epoch, [Put("a", b"9", None)]), FencedError, "makes a record")
    following = _lead(other, _CELL)
    _refused(lambda: one.change(_CELL, epoch, [Put("c", b"", None)]), FencedError, "makes a record")
    require(other.names(_CELL) == ["a", "b"], "a stale leader has changed something, or something is lost")
    other.change(_CELL, following, [RemoveRecord("b", b.version), Put("a", b"4", _record(other, "a").version)])
    require((one.names(_CELL), _record(one, "a").value) == (["a"], b"4"), "the next leader can't change records")
    other.release(_CELL, following)
    require(one.exists(_CELL), "there is nothing of a cell with records")
    one.forget(_CELL)
    one.forget(_CELL)
    require(not other.exists(_CELL), "there is something of a cell that was forgotten")
    require(other.read(_CELL, "a") is None, "a cell that was forgotten has a record")
    last = _lead(one, _CELL)
    require(one.names(_CELL) == [], "a cell that was forgotten has records")
    one.release(_CELL, last)
    other.release(_OTHER, independent)


def _record(cells: Cells, name: str) -> Record:
    record = require_some(cells.read(_CELL, name), f"the record {name} is missing")
    return record


def _refused(call: Callable[[], object], how: type[Exception], what: str) -> None:
    try:
        call()
    except how:
        return
    raise AssertionError(f"somebody {what}, and nobody minds")
