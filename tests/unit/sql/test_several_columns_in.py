"""IN and NOT IN of several columns, where a NULL leaves it open only if the other columns do not differ."""

from __future__ import annotations

import random

import pytest

from firesteel_sql import TableEnvironment
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector

Pair = tuple[int | None, int | None]


def _equal(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left == right


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _is_in(pair: Pair, rows: list[Pair]) -> bool | None:
    tests = [_both(_equal(pair[0], row[0]), _equal(pair[1], row[1])) for row in rows]
    if True in tests:
        return True
    return None if None in tests else False


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM l WHERE (a, b) IN (SELECT x, y FROM r)",
        "SELECT id FROM l WHERE (a, b) NOT IN (SELECT x, y FROM r)",
        "SELECT id, (a, b) IN (SELECT x, y FROM r) AS q FROM l",
        "SELECT id, (a, b) NOT IN (SELECT x, y FROM r) AS q FROM l",
    ],
)
def test_a_null_leaves_open_what_is_not_decided_otherwise(
    query: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_changes_connector(monkeypatch)
    tables = TableEnvironment.create()
    tables_of(tables, {"l": "id INT, a INT, b INT", "r": "x INT, y INT"})
    rig, pick = QueryRig(tables, query, 2), random.Random(seed).choice
    left: list[tuple[int, Pair]] = []
    right: list[Pair] = []
    for step in range(12):
        pair: Pair = (pick((None, 1, 2)), pick((None, 1, 2)))
        if step % 3 == 2 and right:
            rig.change("r", [(-1, right.pop(0))])
        elif step % 2:
            right.append(pair)
            rig.change("r", [(1, pair)])
        else:
            left.append((step, pair))
            rig.change("l", [(1, (step, *pair))])
        found = {id_: _is_in(pair, right) for id_, pair in left}
        if "NOT" in query:
            found = {id_: None if is_in is None else not is_in for id_, is_in in found.items()}
        expected = {(id_, is_in) for id_, is_in in found.items()}
        if "AS q" not in query:
            expected = {(id_,) for id_, is_in in found.items() if is_in}  # type: ignore[misc]
        assert rig.table == dict.fromkeys(expected, 1)
