"""Aggregates whose results are made of all rows that come and go: JSON, percentiles, neighbours that are not NULL."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from tests.unit.sql.query_rig import QueryRig, tables_of, use_changes_connector

ROWS = [(1, "a", 5), (2, "b", None), (3, "c", 7), (4, "d", 7)]


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    tables_of(environment, {"t": "id INT, s STRING, v INT"})
    return environment


@pytest.mark.parametrize(
    ("call", "of_all", "of_some"),
    [
        ("JSON_ARRAYAGG(v)", "[5,7,7]", "[7]"),
        ("JSON_ARRAYAGG(v NULL ON NULL)", "[5,null,7,7]", "[null,7]"),
        ("JSON_ARRAYAGG(s ABSENT ON NULL) FILTER (WHERE v > 5)", '["c","d"]', '["d"]'),
        ("JSON_ARRAYAGG(JSON_OBJECT(KEY 'id' VALUE id))", '[{"id":1},{"id":2},{"id":3},{"id":4}]',
         '[{"id":2},{"id":4}]'),
        ("JSON_OBJECTAGG(KEY s VALUE v)", '{"a":5,"b":null,"c":7,"d":7}', '{"b":null,"d":7}'),
        ("JSON_OBJECTAGG(s : v ABSENT ON NULL)", '{"a":5,"c":7,"d":7}', '{"d":7}'),
        ("PERCENTILE(v, 0.25)", 6.0, 7.0),
        ("PERCENTILE(v, ARRAY[0, 0.25, 1])", [5.0, 6.0, 7.0], [7.0, 7.0, 7.0]),
        ("PERCENTILE(id, 0.5, v)", 3.0, 4.0),  # 5 times 1, 7 times 3, 7 times 4
        ("FIRST_VALUE(v) IGNORE NULLS", 5, 7),
    ],
)  # fmt: skip
def test_an_aggregate_follows_rows_that_come_and_go(
    call: str, of_all: Any, of_some: Any, tables: TableEnvironment
) -> None:
    rig = QueryRig(tables, f"SELECT JSON_STRING({call}) AS r FROM t" if "ARRAY[" in call else f"SELECT {call} FROM t")

    def shown(value: Any) -> Any:
        return f"[{','.join(map(str, value))}]" if isinstance(value, list) else value

    assert rig.change("t", [(1, row) for row in ROWS]) == {(shown(of_all),): 1}
    rig.restart(2)
    assert rig.change("t", [(-1, ROWS[0]), (-1, ROWS[2])]) == {(shown(of_some),): 1}


def test_json_of_no_rows_is_empty(tables: TableEnvironment) -> None:
    rig = QueryRig(tables, "SELECT JSON_ARRAYAGG(v), JSON_OBJECTAGG(KEY s VALUE v) FROM t")
    rig.change("t", [(1, ROWS[0])])
    assert rig.change("t", [(-1, ROWS[0])]) == {("[]", "{}"): 1}


@pytest.mark.parametrize(("row", "problem"), [((5, "a", 9), 'have the key "a"'), ((5, None, 9), "a key is NULL")])
def test_keys_of_a_json_object_are_unique(row: tuple[Any, ...], problem: str, tables: TableEnvironment) -> None:
    rig = QueryRig(tables, "SELECT JSON_OBJECTAGG(KEY s VALUE v) FROM t")
    rig.change("t", [(1, ROWS[0])])
    with pytest.raises(ProgramError, match=problem):
        rig.change("t", [(1, row)])


def test_neighbours_that_are_null_are_skipped(tables: TableEnvironment) -> None:
    rig = QueryRig(
        tables, "SELECT id, LAG(v) IGNORE NULLS OVER (ORDER BY id), LEAD(v, 2, 0) IGNORE NULLS OVER (ORDER BY id), "
        "LAG(v) RESPECT NULLS OVER (ORDER BY id) FROM t",
    )  # fmt: skip
    assert rig.change("t", [(1, row) for row in ROWS]) == {
        (1, None, 7, None): 1, (2, 5, 7, 5): 1, (3, 5, 0, None): 1, (4, 7, 0, 7): 1,
    }  # fmt: skip


def test_neighbours_by_event_time_skip_any_number_of_nulls(monkeypatch: pytest.MonkeyPatch) -> None:
    use_changes_connector(monkeypatch)
    tables = TableEnvironment.create()
    tables.execute_sql(
        "CREATE TABLE e (id INT, v INT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) "
        "WITH ('connector' = 'changes', 'changes' = 'inserts')"
    )
    rig = QueryRig(tables, "SELECT id, LAG(v) IGNORE NULLS OVER (ORDER BY ts) FROM e")
    for id_, value in enumerate((3, None, None, None, 4), 1):
        rig.change("e", [(1, (id_, value, id_ * 1000))])
        rig.watermark(id_ * 1000)
        rig.restart(1)
    assert rig.table == {(1, None): 1, (2, 3): 1, (3, 3): 1, (4, 3): 1, (5, 3): 1}
