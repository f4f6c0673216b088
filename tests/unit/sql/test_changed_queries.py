"""Queries that are changed while they run: what goes on with the state of the query before gives exactly its results.

The oracle is the changed query, run from the beginning: after the change both give the same changes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firesteel.core.errors import StateMigrationError
from firesteel.state.backend import StateBackend
from firesteel.state.heap import HeapStateBackend
from firesteel_sql import TableEnvironment
from firesteel_sql.plan.changes import keeps_state
from firesteel_sql.plan.meanings import Meanings, OperatorIdentities
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.stateful_relations import WindowKind, WindowTable
from tests.unit.sql.planning import bound
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector
from tests.unit.sql.test_differential import LittleMemory
from tests.unit.sql.test_plans import cases

TABLES = {"t": "k INT, v INT, s STRING", "u": "k INT, w INT, s STRING"}
JOINED = "FROM t {} JOIN u ON t.k = u.k"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(environment, TABLES)
    environment.execute_sql(
        "CREATE TABLE log (k INT, v INT, s STRING) WITH ('connector' = 'changes', 'changes' = 'inserts')"
    )
    return environment


def some_rows(seed: int) -> list[tuple[str, list[tuple[int, tuple[object, ...]]]]]:
    """Batches of rows that come, and of some of them that go."""
    chance = random.Random(seed)
    present: dict[str, list[tuple[object, ...]]] = {"t": [], "u": [], "log": []}
    batches = []
    for number in range(12):
        table = ("t", "u", "log")[number % 3]
        changes: list[tuple[int, tuple[object, ...]]] = []
        for _ in range(6):
            if table != "log" and present[table] and chance.random() < 0.35:
                changes.append((-1, present[table].pop(chance.randrange(len(present[table])))))
            else:
                row = (chance.randrange(4), chance.choice([None, 1, 2, 3, 4, 5]), chance.choice("abc"))
                present[table].append(row)
                changes.append((1, row))
        batches.append((table, changes))
    return batches


KEPT = {
    "projection": ("SELECT k, SUM(v), COUNT(*) FROM t GROUP BY k", "SELECT COUNT(*) * 2, k + 1 FROM t GROUP BY k"),
    "names": (
        "SELECT k, SUM(v) AS total FROM t WHERE v > 1 AND s <> 'c' GROUP BY k",
        "SELECT SUM(b.v) AS x, b.k FROM (SELECT s, k, v FROM t AS a WHERE 'c' <> s AND 1 < v) AS b GROUP BY b.k",
    ),
    "having": (
        "SELECT k, SUM(v) FROM t GROUP BY k",
        "SELECT k, SUM(v) FROM t GROUP BY k HAVING COUNT(*) > 1 AND SUM(v) > 4",
    ),
    "an aggregate less": (
        "SELECT k, COUNT(DISTINCT s), MAX(v), LISTAGG(s), SUM(v) FROM t GROUP BY k",
        "SELECT k, SUM(v) FROM t GROUP BY k",
    ),
    "the order of aggregates": (
        "SELECT k, MIN(v), SUM(v + 1), SUM(v), COUNT(v) FILTER (WHERE s = 'a'), COUNT(v) FILTER (WHERE s = 'b') "
        "FROM t GROUP BY k",
        "SELECT k, COUNT(v) FILTER (WHERE s = 'b'), SUM(v), COUNT(v) FILTER (WHERE s = 'a'), SUM(1 + v), MIN(v) "
        "FROM t GROUP BY k",
    ),
    "distinct arguments": (
        "SELECT k, COUNT(DISTINCT v), SUM(DISTINCT v), COUNT(DISTINCT s) FILTER (WHERE v > 2) FROM t GROUP BY k",
        "SELECT k, SUM(DISTINCT v), COUNT(DISTINCT s) FILTER (WHERE 2 < v), COUNT(DISTINCT v) FROM t GROUP BY k",
    ),
    "no groups": ("SELECT SUM(v), COUNT(*) FROM t", "SELECT COUNT(*), SUM(v) FROM t"),
    "a column of a join less": (f"SELECT t.s, u.s, v, w {JOINED.format('')}", f"SELECT w, t.s {JOINED.format('')}"),
    "a condition of an inner join": (
        f"SELECT v, w {JOINED.format('')}",
        f"SELECT w, v {JOINED.format('')} AND t.v + u.w > 4",
    ),
    "an outer join": (
        f"SELECT t.s, v, w, u.s {JOINED.format('FULL')} AND t.v < u.w",
        f"SELECT w, v {JOINED.format('FULL')} AND u.w > t.v",
    ),
    "a join below an aggregate": (
        f"SELECT t.k, SUM(v), MAX(w) {JOINED.format('LEFT')} GROUP BY t.k",
        f"SELECT MAX(w) AS m, t.k AS key {JOINED.format('LEFT')} GROUP BY t.k HAVING MAX(w) > 1",
    ),
    "a rank": (
        "SELECT v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, s) AS n FROM t) WHERE n <= 2",
        "SELECT v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC, s) AS n FROM t) WHERE n < 3",
    ),
    "results over rows": (
        "SELECT s, SUM(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT MAX(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), "
        "SUM(v) OVER (PARTITION BY k ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    ),
    "different rows": ("SELECT DISTINCT k, v FROM t", "SELECT v + 1, k FROM (SELECT DISTINCT k, v FROM t)"),
    "rows that only come": (
        "SELECT k, MAX(v), LAST_VALUE(s), MIN(v) FROM log GROUP BY k",
        "SELECT MIN(v), k, LAST_VALUE(s) FROM log GROUP BY k",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", [HeapStateBackend, LittleMemory], ids=["heap", "rocksdb"])
@pytest.mark.parametrize(("before", "after"), KEPT.values(), ids=KEPT)
def test_a_changed_query_goes_on_with_the_state(
    environment: TableEnvironment, before: str, after: str, backend: Callable[[], StateBackend], tmp_path: Path
) -> None:
    for seed in range(3):
        rig = QueryRig(environment, before, 2, backend(), tmp_path)
        oracle = QueryRig(environment, after, 1)
        batches = some_rows(seed)
        for table, changes in batches[:6]:
            rig.change(table, changes)
            oracle.change(table, changes)
        dropped = rig.go_on_with(after, 3)
        assert dropped == []
        oracle.table = Counter()
        for table, changes in batches[6:]:
            assert rig.change(table, changes) == oracle.change(table, changes)


def test_an_added_aggregate_begins_now(environment: TableEnvironment) -> None:
    rig = QueryRig(environment, "SELECT k, SUM(v) FROM log GROUP BY k", 2)
    rig.change("log", [(1, (1, 10, "a")), (1, (1, 20, "b")), (1, (2, 5, "c"))])
    after = "SELECT k, SUM(v), COUNT(*), MAX(v), COUNT(DISTINCT s), LISTAGG(s) FROM log GROUP BY k"
    assert rig.go_on_with(after, 1) == []
    rig.change("log", [(1, (1, 7, "a"))])
    assert rig.table == Counter({(1, 30, 2, None, 0, None): -1, (1, 37, 3, 7, 1, "a"): 1})


REFUSED = {
    "an aggregate of rows that may go": (
        "SELECT k, SUM(v) FROM t GROUP BY k",
        "SELECT k, SUM(v), MAX(v) FROM t GROUP BY k",
        "MAX.* it was added, and rows that came before it may go",
    ),
    "a column more of a join": (
        "SELECT w FROM t JOIN u ON t.k = u.k",
        "SELECT w, v FROM t JOIN u ON t.k = u.k",
        "field 'v' of state 'left' .*: the rows of before do not have it; leave it out",
    ),
    "a column more of a rank": (
        "SELECT s FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY s) = 1",
        "SELECT v * 2 FROM t QUALIFY ROW_NUMBER() OVER (ORDER BY s) = 1",
        "the rows of before do not have it",
    ),
}


@pytest.mark.parametrize(("before", "after", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_wrong_is_refused(environment: TableEnvironment, before: str, after: str, reason: str) -> None:
    rig = QueryRig(environment, before)
    rig.change("t", [(1, (1, 10, "a"))])
    rig.change("u", [(1, (1, 10, "a"))])
    with pytest.raises(StateMigrationError, match=reason):
        rig.go_on_with(after, 1)


OTHER_ROWS = {
    "a condition on the rows": ("SELECT k, SUM(v) FROM t GROUP BY k", "SELECT k, SUM(v) FROM t WHERE v > 1 GROUP BY k"),
    "other keys": ("SELECT k, SUM(v) FROM t GROUP BY k", "SELECT s, SUM(v) FROM t GROUP BY s"),
    "another table": ("SELECT k, COUNT(*) FROM t GROUP BY k", "SELECT k, COUNT(*) FROM u GROUP BY k"),
    "another join": ("SELECT v, w FROM t LEFT JOIN u ON t.k = u.k", "SELECT v, w FROM t FULL JOIN u ON t.k = u.k"),
    "a condition that counts partners": (
        "SELECT v, w FROM t LEFT JOIN u ON t.k = u.k AND w > v",
        "SELECT v, w FROM t LEFT JOIN u ON t.k = u.k AND w > v + 1",
    ),
    "more rows of a rank": (
        "SELECT v FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) <= 2",
        "SELECT v FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) <= 3",
    ),
}


@pytest.mark.parametrize(("before", "after"), OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_state_of_other_rows_is_not_taken(environment: TableEnvironment, before: str, after: str) -> None:
    rig = QueryRig(environment, before)
    rig.change("t", [(1, (1, 10, "a"))])
    dropped = rig.go_on_with(after, 1)
    assert len([uid for uid in dropped if not uid.startswith("Source:")]) == 1


def test_an_aggregate_that_comes_back_begins_empty(environment: TableEnvironment, tmp_path: Path) -> None:
    """Also on disk, where rows of groups that did not change meanwhile still have what they had."""
    for backend in (HeapStateBackend(), LittleMemory()):
        with_sum, without = ("SELECT k, MAX(v), SUM(v) FROM log GROUP BY k", "SELECT k, MAX(v) FROM log GROUP BY k")
        rig = QueryRig(environment, with_sum, 1, backend, tmp_path)
        rig.change("log", [(1, (1, 10, "a")), (1, (2, 20, "a"))])
        assert rig.go_on_with(without, 1) == []
        rig.change("log", [(1, (1, 30, "a"))])
        assert rig.go_on_with(with_sum, 1) == []
        rig.change("log", [(1, (1, 1, "a")), (1, (2, 2, "a"))])
        assert rig.table == Counter({(1, 30, None): -1, (1, 30, 1): 1, (2, 20, None): -1, (2, 20, 2): 1}), backend


def test_two_operators_of_one_meaning_are_told_apart(environment: TableEnvironment) -> None:
    counts, sums = ("SELECT k, COUNT(*) AS n FROM t GROUP BY k", "SELECT k, SUM(v) AS m FROM t GROUP BY k")
    query = f"SELECT a.n, b.m FROM ({counts}) AS a JOIN ({sums}) AS b ON a.k = b.k"
    rig = QueryRig(environment, query)
    uids = [node.node.uid for node in rig._nodes.values() if node.node.uid is not None]
    assert sorted(uid.partition("#")[2] for uid in uids if uid.startswith("GroupAggregate")) == ["", "2"]
    rig.change("t", [(1, (1, 10, "a")), (1, (1, 10, "a"))])
    assert rig.go_on_with(query, 3) == []
    rig.change("t", [(1, (1, 5, "a"))])
    assert rig.table == Counter({(2, 20): -1, (3, 25): 1})


def test_each_operator_with_state_of_all_planned_queries_has_an_identity() -> None:
    for case in cases():
        query = case.values[0]  # type: ignore[attr-defined] # pytest's name for it
        assert isinstance(query, str)
        (relation,) = optimised([bound(query)])
        identities = OperatorIdentities()
        operators = {id(part): part for part in relation.walk()}.values()
        uids = [identity.uid for part in operators if (identity := identities.of_operator(part)) is not None]
        assert len(set(uids)) == len(uids)
        for part in operators:
            keeps = keeps_state(part) or (isinstance(part, WindowTable) and part.kind is WindowKind.SESSION)
            assert (Meanings().identity_of(part) is not None) == keeps, query


def test_constant_rows_are_found_by_what_they_are(environment: TableEnvironment) -> None:
    """What was read of them is not read again, and rows of other constants are not taken for them."""

    def uids(query: str) -> list[str]:
        rig = QueryRig(environment, query)
        uids = [node.node.uid or "" for node in rig._nodes.values()]
        return sorted(uid for uid in uids if uid.startswith("Values:"))

    first = "SELECT a FROM (VALUES (1), (2)) AS x (a)"
    second = "SELECT b FROM (VALUES (3)) AS y (b)"
    assert len(uids(f"{first} UNION ALL {second}")) == 2
    assert uids(f"{second} UNION ALL {first}") == uids(f"{first} UNION ALL {second}")
    assert uids(first) != uids(second)
    assert uids("SELECT a + 1 AS c FROM (VALUES (1), (2)) AS z (a)") == uids(first)


WINDOWED = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES))"
JOINED_WINDOWS = (
    f"FROM (SELECT * {WINDOWED}) AS a JOIN (SELECT * {WINDOWED}) AS b "
    "ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k"
)
SAME_STATE = {
    "an interval join": (
        "SELECT t.v, t.s, u.name FROM t JOIN u ON t.k = u.k AND u.at BETWEEN t.ts AND t.ts + INTERVAL '1' HOUR",
        "SELECT u.w FROM t JOIN u ON t.k = u.k AND u.at BETWEEN t.ts AND t.ts + INTERVAL '1' HOUR",
    ),
    "a window": (
        f"SELECT k, window_start, SUM(v), MAX(s) {WINDOWED} GROUP BY k, window_start, window_end",
        f"SELECT MAX(s) AS m, window_end {WINDOWED} GROUP BY k, window_start, window_end",
    ),
    "a join of windows": (f"SELECT a.v, b.s {JOINED_WINDOWS}", f"SELECT a.d, b.x {JOINED_WINDOWS}"),
    "sessions": (
        "SELECT k, COUNT(*) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) "
        "GROUP BY k, window_start, window_end",
        "SELECT k, COUNT(*), SUM(v) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) "
        "GROUP BY k, window_start, window_end",
    ),
    "versions": (
        "SELECT t.v, u.name FROM t JOIN u FOR SYSTEM_TIME AS OF t.ts ON t.k = u.k",
        "SELECT u.w, t.s FROM t JOIN u FOR SYSTEM_TIME AS OF t.ts ON t.k = u.k",
    ),
    "not in": (
        "SELECT v, s FROM t WHERE k NOT IN (SELECT w FROM u)",
        "SELECT d FROM t WHERE k NOT IN (SELECT w FROM u)",
    ),
    "nested": (
        "SELECT s, n FROM (SELECT s, COUNT(*) AS n FROM t GROUP BY s) QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC) <= 3",
        "SELECT n AS c, s AS text FROM (SELECT COUNT(*) AS n, s FROM t GROUP BY s) "
        "QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC) < 4",
    ),
}


@pytest.mark.parametrize(("before", "after"), SAME_STATE.values(), ids=SAME_STATE)
def test_operators_by_time_are_found_again(before: str, after: str) -> None:
    def uids(query: str) -> list[str]:
        (relation,) = optimised([bound(query)])
        identities = OperatorIdentities()
        operators = {id(part): part for part in relation.walk()}.values()
        return sorted(identity.uid for part in operators if (identity := identities.of_operator(part)) is not None)

    assert uids(before) == uids(after)
    assert any(not uid.startswith("Source:") for uid in uids(before))
