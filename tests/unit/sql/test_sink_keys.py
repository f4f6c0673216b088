"""Tables with a primary key get one row for each key, whose changes come in order."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from firesteel.core.errors import ProgramError
from firesteel_sql import TableEnvironment
from firesteel_sql.operators.plans import RankPlan
from firesteel_sql.operators.ranks import RankChanges
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.plan.stateful_relations import RankFunction
from tests.unit.sql.operators.changing_tables import OperatorRun, Record

CLICKS = "('connector' = 'datagen')"
CHANGES = "('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'format' = 'debezium-json')"
UPSERTS = (
    "('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'key.format' = 'json', "
    "'value.format' = 'json')"
)


@pytest.fixture
def tables() -> TableEnvironment:
    environment = TableEnvironment.create()
    environment.execute_sql(f"CREATE TABLE clicks (id INT, url STRING, ts TIMESTAMP(3)) WITH {CLICKS}")
    environment.execute_sql(
        f"CREATE TABLE orders (id INT, cust INT, price INT, PRIMARY KEY (id) NOT ENFORCED) WITH {UPSERTS}"
    )
    environment.execute_sql(f"CREATE TABLE log (id INT, cust INT) WITH {CHANGES}")
    environment.execute_sql(
        f"CREATE TABLE customers (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH {UPSERTS}"
    )
    for name, columns in (
        ("by_id", "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"),
        ("by_id_and_v", "id BIGINT, v STRING, PRIMARY KEY (id, v) NOT ENFORCED"),
        ("by_v", "id BIGINT, v STRING, PRIMARY KEY (v) NOT ENFORCED"),
    ):
        environment.execute_sql(f"CREATE TABLE {name} ({columns}) WITH {UPSERTS}")
    environment.execute_sql(f"CREATE TABLE without_key (id BIGINT, v STRING) WITH {CHANGES}")
    return environment


COUNTS = "SELECT id, CAST(COUNT(*) AS STRING) FROM clicks GROUP BY id"
CASES = [
    ("the key of groups", "by_id", COUNTS, False),
    ("a shorter key than the sink's: its value changes", "by_id_and_v", COUNTS, True),
    ("another column", "by_v", COUNTS, True),
    ("no key at the sink", "without_key", COUNTS, False),
    ("rows that never change", "by_v", "SELECT id, url FROM clicks", False),
    ("a table's own key", "by_id", "SELECT id, CAST(price AS STRING) FROM orders", False),
    ("a constant beside the key", "by_id_and_v", "SELECT id, 'x' FROM orders", False),
    ("a key that a cast cuts", "by_id", "SELECT CAST(id AS TINYINT), 'x' FROM orders", True),
    ("changes without a key", "by_id", "SELECT id, 'x' FROM log", True),
    # The order's customer may change, and the rows of two customers are joined by two subtasks.
    ("the key of a join's side", "by_id", "SELECT o.id, c.name FROM orders o JOIN customers c ON o.cust = c.id", True),
    ("a join by that key", "by_id", "SELECT o.id, c.name FROM orders o JOIN customers c ON o.id = c.id", False),
    ("rows that come once", "by_v", "SELECT a.id, a.v FROM (SELECT DISTINCT id, url AS v FROM clicks) a", False),
    ("a latest row for each key", "by_id", "SELECT id, url FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY "
     "ts DESC) AS n FROM clicks) WHERE n = 1", False),
    ("a rank of a changing table", "by_id", "SELECT id, 'x' FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cust ORDER "
     "BY price) AS n FROM orders) WHERE n <= 3", True),
    ("a union", "by_id", f"{COUNTS} UNION ALL {COUNTS}", True),
]  # fmt: skip


@pytest.mark.parametrize(("sink", "query", "needs"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_plan_materializes_where_the_key_of_the_query_is_another(
    tables: TableEnvironment, sink: str, query: str, needs: bool
) -> None:
    plan = tables.explain_sql(f"INSERT INTO {sink} {query}").partition("== Optimized Physical Plan ==")[2]
    assert ("SinkMaterializer(" in plan) is needs, plan
    tables.get_config().set("table.exec.sink.require-on-conflict", "true")
    if needs:
        with pytest.raises(SqlError, match="ON CONFLICT DO DEDUPLICATE, NOTHING or ERROR"):
            tables.explain_sql(f"INSERT INTO {sink} {query}")
        said = tables.explain_sql(f"INSERT INTO {sink} {query} ON CONFLICT DO NOTHING")
        assert "conflictStrategy=[NOTHING]" in said
    else:
        tables.explain_sql(f"INSERT INTO {sink} {query}")


def test_options_and_statements_decide(tables: TableEnvironment) -> None:
    tables.get_config().set("table.exec.sink.upsert-materialize", "NONE")
    assert "SinkMaterializer" not in tables.explain_sql(f"INSERT INTO by_v {COUNTS}")
    assert "DEDUPLICATE" in tables.explain_sql(f"INSERT INTO by_v {COUNTS} ON CONFLICT DO DEDUPLICATE")
    tables.get_config().set("table.exec.sink.upsert-materialize", "FORCE")
    assert "SinkMaterializer(primaryKey=[id]" in tables.explain_sql(f"INSERT INTO by_id {COUNTS}")
    with pytest.raises(SqlError, match="without_key has no PRIMARY KEY"):
        tables.explain_sql(f"INSERT INTO without_key {COUNTS} ON CONFLICT DO ERROR")


INPUT = pa.schema([("origin", pa.int64()), ("id", pa.int64()), ("text", pa.string())])


def run_of(parallelism: int = 1, *, first: bool = False, refuses: bool = False) -> OperatorRun:
    plan = RankPlan(
        RankFunction.ROW_NUMBER, (), 1, 1, False, len(INPUT), last_of_peers=not first, refuses_peers=refuses
    )
    return OperatorRun(lambda: RankChanges(plan, [INPUT], INPUT), [INPUT], [[1]], parallelism)


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("seed", range(10))
def test_a_sink_by_key_ends_with_the_rows_that_are_there(seed: int, first: bool) -> None:
    """Rows of two subtasks: each moves from key to key, and its two changes come in either order."""
    rng = random.Random(seed)
    run = run_of(rng.choice((1, 3)), first=first)
    rows: list[Record] = []  # those that are there, in the order in which they came
    sink: dict[int, Record] = {}
    for step in range(60):
        moves: list[tuple[int, Record]] = []
        if rows and rng.random() < 0.5:
            moves.append((-1, rng.choice(rows)))
        if rng.random() < 0.8:
            moves.append((1, (step, rng.randrange(4), rng.choice(("a", "b", None)))))
        rng.shuffle(moves)
        for weight, row in moves:
            rows.append(row) if weight > 0 else rows.remove(row)
            run.push([(0 if weight > 0 else 3, row)])
            for kind, changed in run.results:
                if kind in (0, 2):
                    sink[changed[1]] = changed
                elif kind == 3:
                    del sink[changed[1]]
        expected: dict[int, Record] = {}
        for row in rows:
            if not (first and row[1] in expected):
                expected[row[1]] = row
        assert sink == expected
        if step == 30:
            run.restart(rng.choice((1, 2)))


def test_a_second_row_of_a_key_is_an_error_once_the_watermark_advances() -> None:
    run = run_of(refuses=True)
    run.push([(0, (1, 7, "old"))])
    run.push([(0, (2, 7, "new"))])  # comes before the deletion of the old one
    run.push([(3, (1, 7, "old"))])
    run.advance(1)
    run.push([(0, (3, 7, "other"))])
    run.restart(2)
    with pytest.raises(ProgramError, match=r"2 rows have one primary key, such as .*(new|other).* and .*(new|other)"):
        run.advance(2)
