"""Collections and rows as keys are refused before a job starts, with what to write instead."""

from __future__ import annotations

import pytest

from firesteel.core.errors import UnsupportedFeatureError
from firesteel_sql import TableEnvironment
from firesteel_sql.execution.streams import StreamBuilder
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.plan.optimizer import optimised

ROWS = "(SELECT id, ARRAY[id] AS a, MAP['k', id] AS m, ROW(id, id) AS r FROM (VALUES (1), (2)) AS v (id)) AS t"


@pytest.mark.parametrize(
    ("query", "column"),
    [
        ("SELECT a, COUNT(*) FROM {} GROUP BY a", "a"),
        ("SELECT m, COUNT(*) FROM {} GROUP BY m", "m"),
        ("SELECT r, COUNT(*) FROM {} GROUP BY r", "r"),
        ("SELECT DISTINCT a FROM {}", "a"),
        ("SELECT COUNT(DISTINCT r) FROM {}", "r"),
        ("SELECT id, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id) AS n FROM {} QUALIFY n = 1", "a"),
        ("SELECT a FROM {} EXCEPT SELECT a FROM {}", "a"),
    ],
)
def test_a_collection_or_a_row_as_key_is_refused_by_its_name(query: str, column: str) -> None:
    tables = TableEnvironment.create()
    (relation,) = optimised([tables.sql_query(query.replace("{}", ROWS))._relation], table_mode)
    with pytest.raises(UnsupportedFeatureError, match=rf"by {column}, which is .*, yet: take parts of it"):
        StreamBuilder(tables._for_a_job()).build(relation)
