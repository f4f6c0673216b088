"""Joins, ranks, OVER and what else remembers rows, planned from SQL, in real slots."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from firesteel_sql import StreamTableEnvironment
from tests.integration.embedded.programs import new_environment

pytestmark = pytest.mark.usefixtures("cluster")

ORDERS = [(1, "EUR", 10, 5), (2, "USD", 20, 6), (3, "EUR", 30, 15), (4, "XXX", 1, 20), (5, "EUR", 7, 40)]
RATES = [("EUR", 114, 1), ("USD", 1, 2), ("EUR", 116, 10), ("EUR", 118, 16)]
QUERIES = {
    "temporal": "o.id, r.rate FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF o.ts ON o.cur = r.cur",
    "interval": "o.id, r.rate FROM o LEFT JOIN r ON o.cur = r.cur AND r.ts BETWEEN o.ts - INTERVAL '10' SECOND "
    "AND o.ts",
    "regular": "o.id, r.rate FROM o FULL JOIN r ON o.cur = r.cur AND o.amount > 8 AND r.rate < 118",
    "not in": "id, amount FROM o WHERE cur NOT IN (SELECT cur FROM r)",
    "last": "id, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) AS n FROM o) WHERE n = 1",
    "top": "id, CAST(n AS INT) FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY amount DESC) AS n FROM o) WHERE n <= 2",
    "running": "id, SUM(amount) OVER (PARTITION BY cur ORDER BY ts) FROM o",
    "around": "id, MAX(amount) OVER (PARTITION BY cur ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM o",
    "elements": "id, e FROM o CROSS JOIN UNNEST(ARRAY[amount, amount + 1]) AS t (e) WHERE id < 3",
    "repeated": "CAST(NULL AS INT), CHAR_LENGTH(cur) FROM (SELECT cur FROM o INTERSECT ALL SELECT cur FROM r)",
    "top of groups": "CAST(n AS INT), total FROM (SELECT COUNT(*) AS n, SUM(amount) AS total FROM o GROUP BY cur) "
    "QUALIFY ROW_NUMBER() OVER (ORDER BY n DESC) = 1",
    "outer join of groups": "CAST(n AS INT), rate FROM (SELECT cur, COUNT(*) AS n FROM o GROUP BY cur) AS g "
    "LEFT JOIN r ON g.cur = r.cur AND r.rate > 115",
    "top of windows": "id, amount FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC) = 1",
    "joined twice": "CAST(COUNT(*) AS INT), SUM(b.amount) FROM o AS a JOIN o AS b ON a.cur = b.cur GROUP BY a.cur",
}  # fmt: skip
EXPECTED: dict[str, list[tuple[object, ...]]] = {
    "temporal": [(1, 114), (2, 1), (3, 116), (4, None), (5, 118)],
    "interval": [(1, 114), (2, 1), (3, 116), (4, None), (5, None)],
    "regular": [(1, 114), (1, 116), (2, 1), (3, 114), (3, 116), (4, None), (5, None), (None, 118)],
    "not in": [(4, 1)],
    "last": [(2, 20), (4, 1), (5, 7)],
    "top": [(3, 1), (2, 2)],
    "running": [(1, 10), (2, 20), (3, 40), (4, 1), (5, 47)],
    "around": [(1, 30), (2, 20), (3, 30), (4, 1), (5, 30)],
    "elements": [(1, 10), (1, 11), (2, 20), (2, 21)],
    "repeated": [(None, 3)] * 4,
    "top of groups": [(3, 47)],
    "outer join of groups": [(3, 116), (3, 118), (1, None), (1, None)],
    "top of windows": [(2, 20), (3, 30), (4, 1), (5, 7)],
    "joined twice": [(9, 141), (1, 20), (1, 1)],
}


def test_operators_that_remember_rows(tmp_path: Path) -> None:
    """All in one job: each result says which query it is of."""
    orders = [dict(zip(("id", "cur", "amount", "ts"), (*row[:3], time_of(row[3])), strict=True)) for row in ORDERS]
    rates = [dict(zip(("cur", "rate", "ts"), (*row[:2], time_of(row[2])), strict=True)) for row in RATES]
    tables = StreamTableEnvironment.create(new_environment(2))
    for name, rows, columns in (
        ("o", orders, "id INT, cur STRING, amount INT"),
        ("r", rates, "cur STRING, rate INT, PRIMARY KEY (cur) NOT ENFORCED"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)))
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')"
        )
    query = " UNION ALL ".join(f"SELECT '{name}' AS query, {text}" for name, text in QUERIES.items())
    sums: Counter[tuple[object, ...]] = Counter()
    for row in tables.sql_query(query).execute().collect():
        sums[tuple(row)] += -1 if row.get_row_kind().value % 2 else 1
    for name, rows_of_query in EXPECTED.items():
        result = Counter({row[1:]: count for row, count in sums.items() if row[0] == name and count})
        assert result == Counter(rows_of_query), name


def time_of(second: int) -> str:
    return f"2024-01-01 00:00:{second:02}"
