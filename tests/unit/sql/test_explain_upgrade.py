"""EXPLAIN UPGRADE: what a changed statement makes of the state of a savepoint, before anything stops."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from firesteel.core.errors import CheckpointError
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.specs import ChainSpec
from firesteel_sql import TableEnvironment
from firesteel_sql.execution.table_modes import table_mode
from firesteel_sql.parse import statement_nodes as s
from firesteel_sql.parse.statements import parse_statement
from firesteel_sql.plan.meanings import OperatorIdentities
from firesteel_sql.plan.plan_files import CompiledPlan
from tests.unit.client.upgrades import JOB, Program
from tests.unit.sql.query_rig import tables_of, use_changes_connector


class SqlProgram(Program):
    """INSERTs as a job, which runs without rows."""

    records: Sequence[object] = ()  # type: ignore[assignment] # none are read

    def __init__(self, tables: TableEnvironment, inserts: Sequence[str]) -> None:
        environment = tables._for_a_job()
        parsed = [(parse_statement(insert), insert) for insert in inserts]
        planned = tables._planned([(insert, sql) for insert, sql in parsed if isinstance(insert, s.Insert)])
        plan = CompiledPlan(tuple(part for _, part in planned), OperatorIdentities(table_mode))
        tables._add_operators(environment, plan)
        self.graph = environment._stream_graph("test")
        self.chains: list[ChainSpec] = []

        def remember(chain: ChainSpec) -> bytes:
            self.chains.append(copy.deepcopy(chain))
            return str(len(self.chains)).encode()

        self.job, _ = build_job_graph(self.graph, job_id=JOB, pickle_chain=remember, config={})


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    use_changes_connector(monkeypatch)
    environment = TableEnvironment.create()
    environment.get_config().set("parallelism.default", "2")
    tables_of(environment, {"t": "k INT, v INT, s STRING", "u": "k INT, w INT"})
    environment.execute_sql(
        "CREATE TABLE log (k INT, v INT, s STRING) WITH ('connector' = 'changes', 'changes' = 'inserts')"
    )
    tables_of(environment, {"a": "k INT, total INT, texts BIGINT", "b": "k INT, v INT, w INT"})
    return environment


def explained(tables: TableEnvironment, path: Path, statement: str) -> list[str]:
    (row,) = tables.execute_sql(f"EXPLAIN UPGRADE FROM '{path}' {statement}").collect()
    text: str = row[0]
    return text.splitlines()


GROUPED = "SELECT k, SUM(v), COUNT(DISTINCT s) FROM log GROUP BY k"
JOINED = "SELECT t.k, v, w FROM t JOIN u ON t.k = u.k"


@pytest.fixture
def savepoint(tables: TableEnvironment, tmp_path: Path) -> Path:
    program = SqlProgram(tables, [f"INSERT INTO a {GROUPED}", f"INSERT INTO b {JOINED}"])
    (tmp_path / "_metadata").write_bytes(program.savepoint().to_bytes())
    return tmp_path


def test_the_same_statements_in_another_order(tables: TableEnvironment, savepoint: Path) -> None:
    lines = explained(tables, savepoint, f"STATEMENT SET BEGIN INSERT INTO b {JOINED}; INSERT INTO a {GROUPED}; END")
    assert lines == [
        f"== Upgrade From {savepoint} ==",
        "TableSourceScan(table=[[default_catalog, default_database, t]], fields=[k, v, s]): kept",
        "TableSourceScan(table=[[default_catalog, default_database, u]], fields=[k, w]): kept",
        "Join(joinType=[InnerJoin], where=[=(k, k)], select=[k, v, k, w]): kept",
        "Sink(table=[default_catalog.default_database.b]): kept",
        "TableSourceScan(table=[[default_catalog, default_database, log]], fields=[k, v, s]): kept",
        "GroupAggregate(groupBy=[k], select=[k, SUM(v) AS EXPR$1, COUNT(DISTINCT s) AS EXPR$2]): kept",
        "Sink(table=[default_catalog.default_database.a]): kept",
        "",
        "The job can go on from it.",
    ]


def test_state_that_nobody_takes_is_refused_or_dropped(tables: TableEnvironment, savepoint: Path) -> None:
    tables.get_config().set("parallelism.default", "3")
    _, _, group, join, _, end = explained(tables, savepoint, GROUPED)
    assert group.endswith("COUNT(DISTINCT s) AS EXPR$2]): kept, parallelism 2 -> 3")
    assert re.fullmatch(
        r"Join \(Join:[0-9a-f]{20}\): incompatible: the program does not have it any more; -n drops its state", join
    )
    assert end == "The job can't go on from it."
    tables.get_config().set("execution.state-recovery.ignore-unclaimed-state", "true")
    *_, join, _, end = explained(tables, savepoint, GROUPED)
    assert re.fullmatch(r"Join \(Join:[0-9a-f]{20}\): dropped", join)
    assert end == "The job can go on from it."


def test_what_an_operator_keeps(tables: TableEnvironment, savepoint: Path) -> None:
    tables.get_config().set("execution.state-recovery.ignore-unclaimed-state", "true")
    lines = explained(tables, savepoint, "SELECT k, MAX(v) AS m, SUM(v) FROM log GROUP BY k")
    assert lines[2:6] == [
        "GroupAggregate(groupBy=[k], select=[k, MAX(v) AS m, SUM(v) AS EXPR$2]): kept",
        "   MAX(v): added, begins empty",
        "   COUNT(DISTINCT s): removed",
        "   DISTINCT s: removed",
    ]
    lines = explained(tables, savepoint, "SELECT w FROM t JOIN u ON t.k = u.k")
    assert lines[3:5] == ["Join(joinType=[InnerJoin], where=[=(k, k)], select=[k, k, w]): kept", "   v: removed"]
    lines = explained(tables, savepoint, "SELECT t.s, w FROM t JOIN u ON t.k = u.k")
    assert lines[3:5] == [
        "Join(joinType=[InnerJoin], where=[=(k, k)], select=[k, s, k, w]): incompatible",
        "   left: s: the rows of before do not have it",
    ]
    assert lines[-1] == "The job can't go on from it."
    lines = explained(tables, savepoint, "SELECT w FROM t JOIN u ON t.k = u.k WHERE v > 1")
    assert lines[3] == "Join(joinType=[InnerJoin], where=[=(k, k)], select=[k, k, w]): new, begins empty"


def test_rows_that_are_held_back_for_an_epoch_are_those_of_a_sink(tables: TableEnvironment) -> None:
    tables.execute_sql("SET 'table.exec.consistency' = 'epoch'")
    tables.execute_sql("SET 'execution.checkpointing.interval' = '1 s'")
    program = SqlProgram(tables, [f"INSERT INTO a {GROUPED}", f"INSERT INTO b {JOINED}"])
    uids = [node.uid for node in program.graph.nodes.values() if node.uid is not None]
    held_back = [uid.partition(" of ")[0] for uid in uids if "epochs" in uid]
    assert held_back == [f"Sink:default_catalog.default_database.{name}: epochs" for name in "ab"]


def test_no_savepoint_is_an_error(tables: TableEnvironment, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing"):
        explained(tables, tmp_path / "nothing", "SELECT * FROM t")
