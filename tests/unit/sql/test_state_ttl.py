"""Time-to-live of state: what operators forget, what they make of changes to forgotten rows, and who says how long."""

from __future__ import annotations

import pytest

from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(environment, {"a": "k INT, v INT", "b": "k INT, w STRING"})
    environment.get_config().set("table.exec.state.ttl", "100 ms")
    return environment


def rig_of(tables: TableEnvironment, query: str) -> QueryRig:
    rig = QueryRig(tables, query)
    rig.clock.now = 1000
    return rig


def test_a_group_begins_anew_when_no_row_came_for_some_time(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT k, COUNT(*), SUM(v) FROM a GROUP BY k")
    rig.change("a", [(1, (1, 10)), (1, (2, 5))])
    rig.clock.now = 1099
    rig.change("a", [(1, (1, 20))])
    assert rig.changes == [(UPDATE_BEFORE, (1, 1, 10)), (UPDATE_AFTER, (1, 2, 30))]
    rig.clock.now = 1198
    rig.change("a", [(1, (1, 1)), (1, (2, 6))])
    assert rig.changes == [
        (UPDATE_BEFORE, (1, 2, 30)),
        (UPDATE_AFTER, (1, 3, 31)),
        (INSERT, (2, 1, 6)),
    ] or rig.changes == [(INSERT, (2, 1, 6)), (UPDATE_BEFORE, (1, 2, 30)), (UPDATE_AFTER, (1, 3, 31))]
    assert rig.counted("numExpiredStateRows") == 1


def test_rows_that_go_from_a_forgotten_group_are_counted_and_left_out(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT k, SUM(v) FROM a GROUP BY k")
    rig.change("a", [(1, (1, 10)), (1, (2, 5))])
    rig.clock.now = 1100
    rig.change("a", [(-1, (1, 10)), (1, (1, 11)), (-1, (2, 5)), (-1, (3, 1))])
    assert rig.changes == [(INSERT, (1, 11))], "as in Flink: the group begins with the row after the update"
    assert rig.counted("numUnmatchedRetractions") == 3
    rig.change("a", [(-1, (1, 11)), (-1, (1, 11)), (1, (1, 4)), (1, (1, 5)), (-1, (1, 4))])
    assert rig.changes == [(UPDATE_BEFORE, (1, 11)), (UPDATE_AFTER, (1, 5))]
    assert rig.counted("numUnmatchedRetractions") == 4


def test_a_result_that_does_not_change_is_given_again(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT k, MAX(v) FROM a GROUP BY k")
    rig.change("a", [(1, (1, 10))])
    rig.change("a", [(1, (1, 9))])
    assert rig.changes == [(UPDATE_BEFORE, (1, 10)), (UPDATE_AFTER, (1, 10))]


def test_values_of_distinct_arguments_and_stored_rows_expire_by_themselves(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT COUNT(DISTINCT v), MIN(v), LISTAGG(CAST(v AS STRING)) FROM a")
    rig.change("a", [(1, (1, 10))])
    rig.clock.now = 1060
    rig.change("a", [(1, (1, 20))])
    assert rig.table == {(2, 10, "10,20"): 1}
    rig.clock.now = 1120
    rig.change("a", [(-1, (1, 10)), (1, (1, 30))])
    assert rig.changes[-1] == (UPDATE_AFTER, (3, 20, "20,30")), "what has expired is not taken back from COUNT"
    assert rig.counted("numUnmatchedRetractions") >= 2  # of DISTINCT, of MIN, of LISTAGG
    assert rig.counted("numExpiredStateRows") >= 2


def test_rows_of_a_join_expire_by_input(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT /*+ STATE_TTL('x' = '0', 'b' = '50 ms') */ v, w FROM a AS x LEFT JOIN b ON x.k = b.k")
    rig.change("a", [(1, (1, 10))])
    rig.change("b", [(1, (1, "first"))])
    rig.clock.now = 1050
    rig.change("a", [(1, (1, 11))])
    assert rig.changes == [(INSERT, (11, None))]
    rig.clock.now = 99_999
    rig.change("b", [(-1, (1, "first")), (1, (1, "second"))])
    assert sorted(rig.changes, key=str) == sorted(
        [(DELETE, (11, None)), (INSERT, (10, "second")), (INSERT, (11, "second"))], key=str
    )
    assert rig.counted("numUnmatchedRetractions") == 1


def test_a_partner_begins_the_life_of_a_row_of_an_outer_side_anew(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT v, w FROM a LEFT JOIN b ON a.k = b.k")
    rig.change("a", [(1, (1, 10))])
    rig.clock.now = 1090
    rig.change("b", [(1, (1, "x"))])
    rig.clock.now = 1180
    rig.change("b", [(1, (1, "y"))])
    assert rig.changes == [(INSERT, (10, "y"))]


def test_excluded_rows_come_back_for_new_rows_when_the_others_expire(tables: TableEnvironment) -> None:
    rig = rig_of(tables, "SELECT v FROM a WHERE k NOT IN (SELECT k FROM b)")
    rig.change("b", [(1, (1, "x")), (1, (None, "y"))])
    rig.change("a", [(1, (2, 10))])
    assert not rig.changes
    rig.clock.now = 1100
    rig.change("a", [(1, (1, 11))])
    assert rig.changes == [(INSERT, (11,))]


def test_the_next_rows_get_the_ranks_of_those_that_expire(tables: TableEnvironment) -> None:
    query = "SELECT v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS n FROM a) WHERE n <= 2"
    rig = rig_of(tables, query)
    rig.change("a", [(1, (1, 1)), (1, (1, 2))])
    rig.clock.now = 1050
    rig.change("a", [(1, (1, 3)), (1, (1, 4))])
    rig.clock.now = 1100
    rig.change("a", [(1, (1, 5)), (-1, (1, 2))])
    assert [row for kind, row in rig.changes if not kind & 1] == [(3, 1), (4, 2)]
    assert rig.counted("numUnmatchedRetractions") == 1
    rig.restart(2)
    rig.clock.now = 1149
    rig.change("a", [(-1, (1, 3))])
    assert (DELETE, (3, 1)) in rig.changes or (UPDATE_BEFORE, (3, 1)) in rig.changes


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT DISTINCT k FROM a", "GroupAggregate"),
        ("SELECT k FROM a LIMIT 3", "Rank"),
        ("SELECT v, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM a", "OverAggregate"),
        ("SELECT v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", "Join"),
    ],
)
def test_operators_forget_rows_and_say_so(tables: TableEnvironment, query: str, name: str) -> None:
    assert "stateTtl=[" in next(line for line in tables.explain_sql(query).splitlines() if f"{name}(" in line and
                                "Logical" not in line)  # fmt: skip
    rig = rig_of(tables, query)
    rig.change("a", [(1, (1, 10)), (1, (2, 20))])
    rig.change("b", [(1, (1, "x")), (1, (2, "y"))])
    rig.clock.now = 5000
    rig.change("a", [(1, (3, 10))])
    rig.change("b", [(1, (4, "x"))])
    rig.change("a", [(-1, (1, 10))])
    assert rig.counted("numExpiredStateRows") >= 2
    assert rig.counted("numUnmatchedRetractions") == 1


def test_without_a_time_to_live_a_row_that_never_came_is_an_error(tables: TableEnvironment) -> None:
    tables.get_config().set("table.exec.state.ttl", "0")
    rig = rig_of(tables, "SELECT k, COUNT(*) FROM a GROUP BY k")
    with pytest.raises(Exception, match="goes that never came"):
        rig.change("a", [(-1, (1, 10))])


def test_explain_shows_what_hints_say(tables: TableEnvironment) -> None:
    text = tables.explain_sql(
        "SELECT /*+ STATE_TTL('a' = '1d', 'y' = '90 min') */ a.v, y.w FROM a JOIN b AS y ON a.k = y.k", "PLAN_ADVICE"
    )
    assert "stateTtl=[left=1 d, right=90 min]" in text
    assert "No available advice" in text
    text = tables.explain_sql("SELECT /*+ STATE_TTL('a' = '0') */ k, COUNT(*) FROM a GROUP BY k", "PLAN_ADVICE")
    assert "stateTtl=[0]" in text
    assert "keeps rows without an end" in text


@pytest.mark.parametrize(
    ("hint", "error"),
    [
        ("STATE_TTL('orders' = '1 d')", "STATE_TTL: the SELECT has no input 'orders'; there is a"),
        ("STATE_TTL('A' = '1 d')", "STATE_TTL: the SELECT has no input 'A'; did you mean a?"),
        ("STATE_TTL('a' = 'long')", "STATE_TTL: 'a' can't be 'long': expected"),
        ("STATE_TTL('a')", "STATE_TTL names inputs with durations"),
    ],
)
def test_hints_that_say_nothing_are_refused_with_their_place(tables: TableEnvironment, hint: str, error: str) -> None:
    with pytest.raises(SqlError) as refused:
        tables.sql_query(f"SELECT /*+ {hint} */ k, COUNT(*) FROM a GROUP BY k")
    assert refused.value.problem.startswith(error)
    assert (refused.value.line, refused.value.column) == (1, 12)
