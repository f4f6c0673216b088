"""COMPILE PLAN and EXECUTE PLAN: plans come back from their files as they were, and damaged files say where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel.table.types import DataTypes
from firesteel_sql import TableEnvironment
from firesteel_sql.catalog.catalogs import Catalogs
from firesteel_sql.catalog.ddl import create_text
from firesteel_sql.catalog.tables import CatalogTable, TableColumn
from firesteel_sql.execution.compiled_plans import plan_of_text
from firesteel_sql.parse.errors import SqlError
from firesteel_sql.plan.meanings import OperatorIdentities
from firesteel_sql.plan.optimizer import optimised
from firesteel_sql.plan.plan_files import CompiledPlan, PlanFileError, PlannedInsert, plan_text
from firesteel_sql.plan.relations import Column, ConstantRows, Relation
from firesteel_sql.plan.row_expressions import Constant
from firesteel_sql.plan.state_ttl import with_state_ttl
from tests.unit.sql import test_nexmark_plans as nexmark
from tests.unit.sql import test_tpch_plans as tpch
from tests.unit.sql.planning import CATALOGS, bound
from tests.unit.sql.test_plans import cases

SINK = CatalogTable((TableColumn("k", DataTypes.INT()),), {"connector": "blackhole"})


def queries() -> Iterator[object]:
    for case in cases():
        yield pytest.param(case.values[0], CATALOGS, id=case.id)  # type: ignore[attr-defined] # pytest's names
    for name, corpus in (("nexmark", nexmark), ("tpch", tpch)):
        for number, query in corpus.QUERIES.items():
            yield pytest.param(query, corpus.CATALOGS, id=f"{name}-{number}")


def text_of(relations: list[Relation]) -> str:
    inserts = [PlannedInsert(("c", "d", f"sink{n}"), SINK, relation) for n, relation in enumerate(relations)]
    return plan_text(
        inserts, OperatorIdentities(), lambda path, table: create_text(path, table, masks_secrets=True), str, "1"
    )


def identities_of(relations: list[Relation], plan: CompiledPlan | None = None) -> list[Any]:
    """The identities of all operators, in the order in which they are built."""
    identities = OperatorIdentities() if plan is None else plan.identities
    found, known = [], list[Relation]()

    def visit(relation: Relation) -> None:
        if not any(relation is other for other in known):
            for part in relation.inputs:
                visit(part)
            known.append(relation)
            found.append(identities.of_operator(relation))

    for relation in relations:
        visit(relation)
    return [*found, *(identities.of_sink(("c", "d", f"sink{number}")) for number in range(len(relations)))]


@pytest.mark.parametrize(("query", "catalogs"), list(queries()))
def test_a_plan_comes_back_as_it_was(query: str, catalogs: Catalogs) -> None:
    """Of a statement set, which shares parts."""
    relations = with_state_ttl(optimised([bound(query, catalogs), bound(query, catalogs)]), 60_000)
    text = text_of(relations)
    plan = plan_of_text(text, "file", catalogs)
    restored = [insert.relation for insert in plan.inserts]
    assert restored == relations
    assert (restored[0] is restored[1]) == (relations[0] is relations[1])
    assert identities_of(restored, plan) == identities_of(relations)
    assert "pickle" not in text


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False), st.dates(), st.times(), st.datetimes(),
)  # fmt: skip


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_constants_come_back_as_they_were(values: list[Any]) -> None:
    row = tuple(Constant(DataTypes.STRING(), value) for value in values)
    columns = tuple(Column(f"c{place}", DataTypes.STRING()) for place in range(len(values)))
    relation = ConstantRows(columns, (row,))
    (insert,) = plan_of_text(text_of([relation]), "file", Catalogs()).inserts
    assert insert.relation == relation
    assert isinstance(insert.relation, ConstantRows)
    restored = [item.value for item in insert.relation.rows[0] if isinstance(item, Constant)]
    assert list(map(type, restored)) == list(map(type, values))


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    monkeypatch.chdir(tmp_path)
    environment = TableEnvironment.create()
    environment.execute_sql("CREATE TABLE t (k INT, v INT) WITH ('connector' = 'datagen')")
    environment.execute_sql("CREATE TABLE low (k INT, v BIGINT) WITH ('connector' = 'print')")
    return environment


def test_a_file_is_written_once(tables: TableEnvironment, tmp_path: Path) -> None:
    insert = "INSERT INTO low SELECT k, SUM(v) FROM t WHERE v > 1 GROUP BY k"
    tables.execute_sql(f"COMPILE PLAN 'plans/a.json' FOR {insert}")
    text = (tmp_path / "plans" / "a.json").read_text()
    plan = json.loads(text)
    assert plan["firesteel-plan"] == 1
    assert [item["relation"] for item in plan["relations"]] == [
        "Scan", "Filter", "GroupBy", "Projection"
    ]  # fmt: skip
    assert plan["tables"][1]["declaration"][0] == "CREATE TABLE `default_catalog`.`default_database`.`t` ("
    assert plan["relations"][2]["state"] == [["k", "v"]]
    with pytest.raises(SqlError, match=r"there is a file plans/a\.json already: remove it, or write IF NOT EXISTS"):
        tables.execute_sql(f"COMPILE PLAN 'plans/a.json' FOR {insert}")
    tables.execute_sql("COMPILE PLAN 'plans/a.json' IF NOT EXISTS FOR INSERT INTO low VALUES (1, 2)")
    assert (tmp_path / "plans" / "a.json").read_text() == text
    tables.execute_sql(f"COMPILE PLAN 'file://{tmp_path}/b.json' FOR STATEMENT SET BEGIN {insert}; {insert}; END")
    plan = json.loads((tmp_path / "b.json").read_text())
    assert [item["uid"] for item in plan["inserts"]] == [
        "Sink:default_catalog.default_database.low", "Sink:default_catalog.default_database.low#2"
    ]  # fmt: skip
    with pytest.raises(PlanFileError, match="plans are files of this host, not of s3"):
        tables.execute_sql(f"COMPILE PLAN 's3://b/c.json' FOR {insert}")


DAMAGES = [
    ("{", "}", "it is no JSON: .* line 1 column"),
    ('"firesteel-plan": 1', '"flinkVersion": "2.1"', "'firesteel-plan' is missing.*compile it again"),
    ('"firesteel-plan": 1', '"firesteel-plan": 9', "a plan of version 9, .* reads version 1"),
    ('"relation": "GroupBy"', '"relation": "Regroup"', r'relations\[2\].relation: this version has no "Regroup"'),
    ('"groups": [0]', '"groups": ["k"]', r'relations\[2\].groups\[0\]: a whole number is expected, not "k"'),
    ('"groups": [0]', '"groups": [7]', r"relations\[2\]: it reads a column that its input does not have, which has 2"),
    ('"groups": [0]', '"group": [0]', r"relations\[2\]: there is no 'group' in GroupBy"),
    ('"column": 1', '"column": 5', r"relations\[1\]: it reads a column that its input does not have"),
    ("firesteel_sql.kernels.", "os:system.", "kernel: this version has no 'os:system"),
    ('"function": "SUM"', '"function": 1', r"relations\[2\].calls\[0\].function: a text is expected, not 1"),
    ('"input": 1', '"input": 2', r"relations\[2\].input: a number below 2 is expected, not 2"),
    ('"rows": 3', '"rows": 8', r"inserts\[0\].rows: a number below 4 is expected"),
    (
        '"name": "v", "type": "INT"',
        '"name": "v", "type": "INTT"',
        r"relations\[0\].columns\[1\].type: 'INTT' is no type",
    ),
    ("`v` INT", "`v` INTT", r"tables\[1\].declaration: "),
]


@pytest.mark.parametrize(("before", "after", "error"), DAMAGES)
def test_a_damaged_file_says_where(
    tables: TableEnvironment, tmp_path: Path, before: str, after: str, error: str
) -> None:
    tables.execute_sql("COMPILE PLAN 'a.json' FOR INSERT INTO low SELECT k, SUM(v) FROM t WHERE v > 1 GROUP BY k")
    text = (tmp_path / "a.json").read_text()
    assert before in text, text
    (tmp_path / "a.json").write_text(text.replace(before, after, 1))
    with pytest.raises(PlanFileError, match=error):
        tables.execute_sql("EXECUTE PLAN 'a.json'")


def test_secrets_stay_in_the_catalog(tables: TableEnvironment, tmp_path: Path) -> None:
    tables.execute_sql(
        "CREATE TABLE secret (k INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://h/d', 'table-name' = 'x', "
        "'username' = 'u', 'password' = 'hush')"
    )
    tables.execute_sql("COMPILE PLAN 'a.json' FOR INSERT INTO secret SELECT k FROM t")
    text = (tmp_path / "a.json").read_text()
    assert "hush" not in text
    (insert,) = plan_of_text(text, "a.json", tables._catalogs).inserts
    assert insert.table.options["password"] == "hush"
    with pytest.raises(PlanFileError, match=r"'password' of .*secret is a secret, which plans do not have: CREATE"):
        plan_of_text(text, "a.json", Catalogs())


def test_what_is_no_file_is_an_error(tables: TableEnvironment, tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"the plan nothing\.json can't be read"):
        tables.execute_sql("EXECUTE PLAN 'nothing.json'")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanFileError, match=r"the plan bytes\.json can't be read"):
        tables.execute_sql("EXECUTE PLAN 'bytes.json'")
