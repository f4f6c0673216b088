"""Plans of queries: relations, columns and types, and what is said of queries that mean nothing.

``plans/*.txt`` has a query behind ``>``, its relations, and behind ``:`` its columns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel_sql.parse.errors import SqlError
from tests.unit.sql.planning import bound, columns, plan

PLANS = Path(__file__).parent / "plans"


def cases() -> list[object]:
    found: list[object] = []
    for path in sorted(PLANS.glob("*.txt")):
        for number, text in enumerate(path.read_text().strip().split("\n\n"), 1):
            query, *lines = text.split("\n")
            found.append(pytest.param(query.removeprefix("> "), lines, id=f"{path.stem}{number}"))
    return found


@pytest.mark.parametrize(("query", "lines"), cases())
def test_a_query_has_its_plan(query: str, lines: list[str]) -> None:
    shown = [f": {name} {data_type}" for name, data_type in columns(query)]
    assert [*plan(query), *shown] == lines


REFUSED = [
    # groups
    ("SELECT k, s FROM t GROUP BY k", 1, 11, "s is neither in GROUP BY nor within an aggregate function"),
    ("SELECT k,\n v + 1, COUNT(*) FROM t GROUP BY k", 2, 2, "v is neither in GROUP BY"),
    ("SELECT k, COUNT(*) FROM t", 1, 8, "k is neither in GROUP BY"),
    ("SELECT k FROM t WHERE SUM(v) > 1", 1, 23, "WHERE can't have the aggregate function SUM: write HAVING"),
    ("SELECT SUM(COUNT(*)) FROM t", 1, 12, "can't have the aggregate function COUNT"),
    ("SELECT SUM(s) FROM t", 1, 8, "SUM: a number is needed, not STRING"),
    ("SELECT SUM(k, v) FROM t", 1, 8, "SUM takes 1 operand, not 2"),
    ("SELECT SUM(*) FROM t", 1, 8, "only COUNT has a *"),
    ("SELECT COUNT() FROM t", 1, 8, "COUNT needs a column, or *"),
    ("SELECT LISTAGG(s, s) FROM t", 1, 8, "the separator has to be a constant"),
    ("SELECT GROUPING(k) FROM t", 1, 1, "GROUPING needs a GROUP BY"),
    ("SELECT GROUPING(v) FROM t GROUP BY ROLLUP (k)", 1, 1, "GROUPING names v, which is not in GROUP BY"),
    # joins
    ("SELECT k FROM t JOIN u ON t.k = u.k", 1, 8, "k means several columns: write t.k or u.k"),
    ("SELECT * FROM t JOIN u USING (v)", 1, 22, "USING (v): on the right side, there is no column v"),
    ("SELECT * FROM t JOIN plain ON t.k", 1, 31, "ON needs a condition, not INT"),
    ("SELECT 1 FROM t JOIN u ON SUM(t.k) = 1", 1, 27, "the aggregate function SUM can't stand here"),
    # queries in expressions
    ("SELECT (SELECT k, v FROM t)", 1, 8, "a query as a value has one column, not 2"),
    ("SELECT k FROM t WHERE k IN (SELECT k, v FROM t)", 1, 23, "IN looks for 1 values, and the query has 2 columns"),
    ("SELECT k FROM t WHERE k > ALL (SELECT k, v FROM t)", 1, 23, "ALL compares with one column, not 2"),
    ("SELECT LAST_VALUE(v) RESPECT NULLS FROM t", 1, 8, "LAST_VALUE: it skips NULLs"),
    ("SELECT SUM(v) IGNORE NULLS FROM t", 1, 8, "SUM: IGNORE NULLS and RESPECT NULLS belong to LAG"),
    ("SELECT PERCENTILE(v, 2) FROM t", 1, 8, "PERCENTILE: the percentage is from 0 to 1"),
    ("SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.q = t.k)", 1, 53, "u has no column q"),
    (
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN plain ON u.k = t.k)", 1, 23,
        "this query depends on the one around it, and the condition of an outer join reads columns of the outer query",
    ),
    # order and ranks
    ("SELECT k, v FROM t ORDER BY v", 1, 29, "Sort on a non-time-attribute field is not supported."),
    ("SELECT k, ts FROM t ORDER BY ts DESC", 1, 30, "Sort on a non-time-attribute field is not supported."),
    ("SELECT k FROM t ORDER BY 3 LIMIT 1", 1, 26, "ORDER BY 3: the query has columns 1 to 1"),
    ("SELECT DISTINCT k FROM t ORDER BY v LIMIT 1", 1, 1, "ORDER BY of a SELECT DISTINCT names columns of the SELECT"),
    ("SELECT k FROM t LIMIT -1", 1, 23, "LIMIT can't be negative"),
    ("SELECT k FROM t LIMIT v", 1, 23, "there is no column v"),
    ("SELECT ROW_NUMBER() FROM t", 1, 8, "ROW_NUMBER needs a window"),
    ("SELECT k FROM t WHERE ROW_NUMBER() OVER (ORDER BY k) = 1", 1, 23, "WHERE can't have a call with OVER"),
    ("SELECT SUM(v) OVER w FROM t", 1, 20, "there is no window w"),
    ("SELECT SUM(v) OVER (ROWS 1 PRECEDING) FROM t", 1, 21, "a frame of ROWS needs an ORDER BY"),
    ("SELECT SUM(v) OVER (ORDER BY ts RANGE 1 PRECEDING) FROM t", 1, 39, "needs an INTERVAL of days to seconds"),
    (
        "SELECT SUM(v) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM t", 1, 46,
        "a frame begins at or before the current row",
    ),
    # windows
    (
        "SELECT * FROM TABLE(TUMBLE(TABLE plain, DESCRIPTOR(k), INTERVAL '1' MINUTE))", 1, 21,
        "The window function requires the timecol to be a time attribute type, but k is INT NOT NULL",
    ),
    ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(tz), INTERVAL '1' MINUTE)", 1, 31, "has no column tz"),
    ("SELECT * FROM TUMBLE(TABLE t, ts, INTERVAL '1' MINUTE)", 1, 31, "the time is written as DESCRIPTOR(column)"),
    ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts))", 1, 15, "TUMBLE needs SIZE"),
    ("SELECT * FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MONTH)", 1, 47, "a constant of days to milliseconds"),
    ("SELECT * FROM HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL '3' HOUR)", 1, 15, "a whole multiple"),
    ("SELECT * FROM TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZES => INTERVAL '1' MINUTE)", 1, 66, "SIZES"),
    ("SELECT * FROM tumbel(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)", 1, 15, "did you mean TUMBLE?"),
    ("SELECT COUNT(*) FROM t GROUP BY TUMBLE(v, INTERVAL '1' HOUR)", 1, 33, "to be a time attribute type"),
    # times
    ("SELECT * FROM t FOR SYSTEM_TIME AS OF ts", 1, 39, "belongs to the right side of a join"),
    ("SELECT * FROM t JOIN u FOR SYSTEM_TIME AS OF t.v ON t.k = u.k", 1, 46, "only supports join on a left table's"),
    ("SELECT * FROM u JOIN t FOR SYSTEM_TIME AS OF u.at ON t.k = u.k", 1, 22, "requires primary key in versioned"),
    ("SELECT * FROM t JOIN u FOR SYSTEM_TIME AS OF t.ts ON t.v = u.w", 1, 22, "an equality condition on the primary"),
    (
        "SELECT * FROM u JOIN dim FOR SYSTEM_TIME AS OF u.pt ON dim.size > 3", 1, 22,
        "requires an equality condition on fields of table [default_catalog.default_database.dim]",
    ),
    ("SELECT * FROM plain, UNNEST(k) AS x", 1, 29, "UNNEST needs an ARRAY, a MAP or a MULTISET, not INT"),
    # sets
    ("SELECT k FROM t EXCEPT SELECT k, w FROM u", 1, 24, "this query has 2 columns, the one before EXCEPT 1"),
    ("SELECT k FROM t INTERSECT SELECT name FROM u", 1, 27, "column k is INT before INTERSECT and STRING"),
]  # fmt: skip


@pytest.mark.parametrize(("query", "line", "column", "problem"), REFUSED)
def test_a_query_without_meaning_is_refused_at_its_place(query: str, line: int, column: int, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        bound(query)
    assert problem in caught.value.problem
    assert (caught.value.line, caught.value.column) == (line, column)
