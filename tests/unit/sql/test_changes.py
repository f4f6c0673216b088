"""Which changes relations give, which keys their rows have, and what sinks refuse."""

from __future__ import annotations

import pytest

from firesteel_sql.connectors.changelog import ALL_CHANGES, INSERT_ONLY, UPSERT, ChangelogMode
from firesteel_sql.plan.changes import changelog_mode, refusal_of_changes, unique_keys
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.relations import Relation, Scan
from firesteel_sql.plan.stateful_relations import Normalize
from tests.unit.sql.planning import bound

SINK = ("c", "d", "out")


def planned(sql: str) -> Relation:
    (relation,) = optimised([bound(sql)])
    return relation


@pytest.mark.parametrize(
    ("sql", "mode", "mode_over_changes"),
    [
        ("SELECT k, v FROM plain WHERE v > 1", "[I]", "[I,UB,UA,D]"),
        ("SELECT DISTINCT k FROM plain", "[I]", "[I,UB,UA,D]"),
        ("SELECT k, COUNT(*) FROM plain GROUP BY k", "[I,UB,UA]", "[I,UB,UA,D]"),
        ("SELECT COUNT(*) FROM plain", "[I,UB,UA]", "[I,UB,UA]"),
        ("SELECT a.v FROM plain a JOIN plain b ON a.k = b.v", "[I]", "[I,UB,UA,D]"),
        ("SELECT a.v FROM plain a LEFT JOIN plain b ON a.k = b.v AND b.k > a.v", "[I,UB,UA,D]", "[I,UB,UA,D]"),
        ("SELECT k FROM plain WHERE v IN (SELECT k FROM plain)", "[I]", "[I,UB,UA,D]"),
        ("SELECT k FROM plain WHERE v NOT IN (SELECT k FROM plain)", "[I,UB,UA,D]", "[I,UB,UA,D]"),
        ("SELECT k FROM plain LIMIT 3", "[I]", "[I,UB,UA,D]"),
        ("SELECT k FROM plain ORDER BY v LIMIT 3", "[I,UB,UA,D]", "[I,UB,UA,D]"),
        ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts) FROM t", "[I]", "[I,UB,UA,D]"),
        ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM t", "[I,UB,UA,D]", "[I,UB,UA,D]"),
        ("SELECT k FROM t ORDER BY ts", "[I]", "[I,UB,UA,D]"),
        (
            "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR) "
            "GROUP BY window_start, window_end", "[I]", "[I]",
        ),
        (
            "SELECT t.k FROM t LEFT JOIN u ON t.v = u.w AND u.at BETWEEN t.ts AND t.ts + INTERVAL '1' HOUR", "[I]",
            "[I,UB,UA,D]",
        ),
        ("SELECT t.k, u.w FROM t JOIN u FOR SYSTEM_TIME AS OF t.ts ON t.k = u.k", "[I]", "[I,UB,UA,D]"),
        ("VALUES (1), (2)", "[I]", "[I]"),
    ],
)  # fmt: skip
def test_changes_of_queries(sql: str, mode: str, mode_over_changes: str) -> None:
    relation = planned(sql)
    assert str(changelog_mode(relation)) == mode
    assert str(changelog_mode(relation, lambda scan: ALL_CHANGES)) == mode_over_changes


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT k, v FROM t", []),
        ("SELECT w, k FROM u", [{1}]),
        ("SELECT w FROM u", []),
        ("SELECT k + 1 FROM u", []),
        ("SELECT COUNT(*), k FROM t GROUP BY k", [{1}]),
        ("SELECT COUNT(*) FROM t", [set()]),
        ("SELECT DISTINCT k, v FROM t", [{0, 1}]),
        ("SELECT t.v, u.k FROM t JOIN u ON t.v = u.w", []),
        ("SELECT a.k, b.k, b.w FROM u a JOIN u b ON a.w = b.w", [{0, 1}]),
        ("SELECT a.k, b.k, b.w FROM u a JOIN u b ON a.w = b.k", [{0}]),
        ("SELECT a.k, b.w FROM u a LEFT JOIN u b ON a.w = b.k", [{0}]),
        ("SELECT k FROM u WHERE w IN (SELECT v FROM t)", [{0}]),
        ("SELECT * FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n <= 3", [{0, 1}]),
        ("SELECT v, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n = 1", [{1}]),
    ],
)
def test_keys_of_queries(sql: str, keys: list[set[int]]) -> None:
    assert [set(key) for key in unique_keys(bound(sql))] == keys


def test_an_append_only_sink_refuses_changes_and_names_who_makes_them() -> None:
    relation = planned("SELECT k, n + 1 AS m FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k)")
    assert refusal_of_changes(SINK, INSERT_ONLY, relation) == (
        "Table sink 'c.d.out' doesn't support consuming update changes which is produced by node "
        "GroupAggregate(groupBy=[k], select=[k, COUNT(*) AS n])"
    )
    deletes = planned("SELECT a.v FROM plain a LEFT JOIN plain b ON a.k = b.v")
    refusal = refusal_of_changes(SINK, INSERT_ONLY, deletes)
    assert refusal is not None
    assert "update and delete changes which is produced by node Join(joinType=[LeftOuterJoin]" in refusal
    assert refusal_of_changes(SINK, UPSERT, relation) is None
    assert refusal_of_changes(SINK, INSERT_ONLY, planned("SELECT k FROM t")) is None


def test_tables_that_come_as_upserts_are_normalised_by_their_key() -> None:
    def mode_of(scan: Scan) -> ChangelogMode:
        return UPSERT if scan.identifier[-1] == "u" else INSERT_ONLY

    (relation,) = optimised(
        [bound("SELECT w, COUNT(*) FROM u GROUP BY w UNION ALL SELECT v, COUNT(*) FROM t GROUP BY v")], mode_of
    )
    (normalize,) = [part for part in relation.walk() if isinstance(part, Normalize)]
    assert normalize.text() == "ChangelogNormalize(key=[k])"
    assert changelog_mode(relation, mode_of) == ALL_CHANGES
