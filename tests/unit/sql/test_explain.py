"""EXPLAIN: the sections of Flink, their trees, and each of the details."""

from __future__ import annotations

import json

import pytest

from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError


@pytest.fixture
def tables() -> TableEnvironment:
    environment = TableEnvironment.create()
    environment.execute_sql(
        "CREATE TABLE orders (id BIGINT, price DECIMAL(10, 2), at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' "
        "SECOND) WITH ('connector' = 'datagen', 'number-of-rows' = '1000')"
    )
    environment.execute_sql("CREATE TABLE low (id BIGINT, name STRING) WITH ('connector' = 'print')")
    environment.execute_sql("CREATE TABLE high (id BIGINT) WITH ('connector' = 'blackhole')")
    return environment


QUERY = "SELECT id, price * 2 AS twice FROM orders WHERE price > 5"


def test_a_query_is_explained_in_three_sections(tables: TableEnvironment) -> None:
    text = tables.explain_sql(QUERY)
    assert text == (
        "== Abstract Syntax Tree ==\n"
        "LogicalProject(id=[$0], twice=[*($1, 2)])\n"
        "+- LogicalFilter(condition=[>(CAST($1):DECIMAL(12, 2), CAST(5):DECIMAL(12, 2) NOT NULL)])\n"
        "   +- LogicalWatermarkAssigner(rowtime=[at], watermark=[-($2, 5000)])\n"
        "      +- LogicalTableScan(table=[[default_catalog, default_database, orders]])\n"
        "\n"
        "== Optimized Physical Plan ==\n"
        "Calc(select=[id, *(price, 2) AS twice], where=[>(CAST(price):DECIMAL(12, 2), 5.00)])\n"
        "+- WatermarkAssigner(rowtime=[at], watermark=[(at - 5000)])\n"
        "   +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[id, price, at])\n"
        "\n"
        "== Optimized Execution Plan ==\n"
        "Calc(select=[id, (price * 2) AS twice], where=[(CAST(price AS DECIMAL(12, 2)) > 5.00)])\n"
        "+- WatermarkAssigner(rowtime=[at], watermark=[(at - 5000)])\n"
        "   +- TableSourceScan(table=[[default_catalog, default_database, orders]], fields=[id, price, at])\n"
    )
    (row,) = tables.execute_sql(f"EXPLAIN PLAN FOR {QUERY}").collect()
    assert row[0] == text
    assert tables.sql_query(QUERY).explain() == text


def test_several_inputs_hang_on_one_line(tables: TableEnvironment) -> None:
    text = tables.explain_sql("SELECT id FROM orders UNION ALL SELECT 1 UNION ALL VALUES (2), (3)")
    assert text.split("\n\n")[0].splitlines()[1:] == [
        "LogicalUnion(all=[true])",
        ":- LogicalUnion(all=[true])",
        ":  :- LogicalProject(id=[$0])",
        ":  :  +- LogicalWatermarkAssigner(rowtime=[at], watermark=[-($2, 5000)])",
        ":  :     +- LogicalTableScan(table=[[default_catalog, default_database, orders]])",
        *text.split("\n\n")[0].splitlines()[6:],
    ]
    assert "LogicalValues(tuples=[[{ 2 }, { 3 }]])" in text


def test_each_detail(tables: TableEnvironment) -> None:
    (row,) = tables.execute_sql(
        f"EXPLAIN CHANGELOG_MODE, ESTIMATED_COST, PLAN_ADVICE, JSON_EXECUTION_PLAN {QUERY}"
    ).collect()
    tree, physical, advice, execution, plan = row[0].split("\n\n")
    assert tree.startswith("== Abstract Syntax Tree ==")
    assert physical.splitlines()[:2] == [
        "== Optimized Physical Plan With Advice ==",
        "Calc(select=[id, *(price, 2) AS twice], where=[>(CAST(price):DECIMAL(12, 2), 5.00)], "
        "changelogMode=[I]): rowcount = 500.0, cumulative cost = {3000.0 rows, 24000.0 io}",
    ]
    assert advice == "No available advice..."
    assert execution.startswith("== Optimized Execution Plan ==")
    assert plan.startswith("== Physical Execution Plan ==\n")
    assert json.loads(plan.partition("\n")[2])["nodes"][0]["pact"] == "Data Source"


def test_inserts_of_a_set_read_a_table_once(tables: TableEnvironment) -> None:
    inserts = (
        "INSERT INTO low (id) SELECT id FROM orders WHERE price < 5; "
        "INSERT INTO high SELECT id FROM orders WHERE price >= 5;"
    )
    for statement in (
        f"EXPLAIN STATEMENT SET BEGIN {inserts} END",
        f"EXPLAIN EXECUTE STATEMENT SET BEGIN {inserts} END",
        f"EXPLAIN JSON_EXECUTION_PLAN STATEMENT SET BEGIN {inserts} END",
    ):
        (row,) = tables.execute_sql(statement).collect()
        assert row[0].count("LogicalSink(table=[default_catalog.default_database.") == 2
        execution = row[0].partition("== Optimized Execution Plan ==")[2]
        assert execution.count("(reuse_id=[1])") == 1
        assert execution.count("Reused(reference_id=[1])") == 1
    nodes = json.loads(execution.partition("== Physical Execution Plan ==")[2])["nodes"]
    assert len([node for node in nodes if node["pact"] == "Data Source"]) == 1, "one source for both"
    text = tables.explain_sql("INSERT INTO low (id) SELECT id FROM orders", "CHANGELOG_MODE")
    assert "Sink(table=[default_catalog.default_database.low], fields=[id, name], changelogMode=[NONE])" in text


def test_a_join_and_an_aggregate_are_explained_by_places_and_by_names(tables: TableEnvironment) -> None:
    (row,) = tables.execute_sql(
        "EXPLAIN CHANGELOG_MODE, PLAN_ADVICE SELECT l.name, COUNT(*) AS n, SUM(DISTINCT price) FILTER (WHERE o.id > 1) "
        "AS s FROM orders AS o LEFT JOIN low AS l ON o.id = l.id AND o.id > 5 GROUP BY l.name"
    ).collect()
    tree, physical, advice, _ = row[0].split("\n\n")
    assert "LogicalAggregate(group=[{4}], n=[COUNT()], s=[SUM(DISTINCT $1) FILTER $5])" in tree
    assert "LogicalJoin(condition=[AND(=($0, $3), >($0, " in tree
    assert "joinType=[left]" in tree
    assert physical.splitlines()[1].endswith("changelogMode=[I,UB,UA,D])")
    assert [line.partition(":")[0] for line in advice.splitlines()] == ["advice[1]", "advice[2]"]


STATES = {
    "SELECT id, SUM(price), COUNT(*), COUNT(DISTINCT at), MAX(price) FROM orders GROUP BY id": [
        "   for each id: the number of rows, SUM(price), COUNT(DISTINCT at), MAX(price): about 120 bytes, grows with "
        "each new id",
        "   each different (at) of a group: about 48 bytes, grows with each row",
    ],
    "SELECT id, MAX(n) FROM (SELECT id, price, COUNT(*) AS n FROM orders GROUP BY id, price) GROUP BY id": [
        "   for each id: the number of rows, MAX(n): about 56 bytes, grows with each new id",
        "   MAX(n): of each row (n): about 36 bytes, grows with each row",
        "   for each id, price: the number of rows: about 56 bytes, grows with each new id, price",
    ],
    "SELECT COUNT(*) FROM orders": ["   for all rows: the number of rows: about 32 bytes, one row"],
    "SELECT /*+ STATE_TTL('o' = '1 d') */ l.name FROM orders AS o LEFT JOIN low AS l ON o.id = l.id": [
        "   left: each row (id): about 36 bytes, forgotten 1 d after its last write",
        "   right: each row (id, name): about 52 bytes, grows with each row",
    ],
    "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR": [
        "   left: each row (id, at): about 44 bytes, until the watermark passes the times of possible partners",
        "   right: each row (id, at): about 44 bytes, until the watermark passes the times of possible partners",
    ],
    "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY window_start, "
    "window_end": [
        "   for each window_start, window_end: the number of rows: about 48 bytes, until the watermark passes the end "
        "of the window"
    ],
    "SELECT id FROM orders QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY price) <= 3": [
        "   the first 3 rows of each id (id, price): about 60 bytes, grows with each new id"
    ],
    "SELECT id FROM orders ORDER BY at": ["   each row (id, at): about 52 bytes, until the watermark passes its time"],
    "SELECT id FROM orders": [],
}  # fmt: skip


@pytest.mark.parametrize("query", STATES)
def test_state_says_what_is_stored_and_what_bounds_it(tables: TableEnvironment, query: str) -> None:
    tables.execute_sql("CREATE TABLE low2 (id BIGINT, name STRING) WITH ('connector' = 'datagen')")
    text = tables.explain_sql(query.replace("low AS", "low2 AS"), "STATE", "PLAN_ADVICE")
    states = text.partition("== State ==\n")[2].splitlines()
    assert [line for line in states if line.startswith("   ")] == STATES[query]
    grows = any("grows" in line for line in states)
    assert ("No available advice" in text) is not grows
    if not STATES[query]:
        assert states == ["No operator stores anything."]


def test_route_says_where_a_query_is_computed(tables: TableEnvironment) -> None:
    (row,) = tables.execute_sql("EXPLAIN STATE, ROUTE SELECT id FROM orders").collect()
    assert row[0].endswith("\n== Route ==\nstreaming: columns through operators in slots\n")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("EXPLAIN CHANGELOG_MOD SELECT 1", "did you mean CHANGELOG_MODE?"),
        ("EXPLAIN DROP TABLE low", "a query, INSERT or STATEMENT SET has to stand here"),
        ("EXPLAIN SELECT nme FROM low", "did you mean name?"),
    ],
)
def test_what_can_not_be_explained_is_refused(tables: TableEnvironment, sql: str, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        tables.execute_sql(sql)
    assert problem in caught.value.problem
