"""SHOW JOBS, DESCRIBE JOB and STOP JOB, on a cluster whose answers are fixed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from firesteel.core.errors import CheckpointError
from firesteel_sql import TableEnvironment
from firesteel_sql.parse.errors import SqlError
from tests.unit.datastream.fakes import FakeExecutor, environment

JOBS = [
    {"jid": "a1", "name": "first", "state": "RUNNING", "start-time": 1500, "end-time": -1},
    {"jid": "b2", "name": "second", "state": "FAILED", "start-time": 2500, "end-time": 3000},
]


class Cluster:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = False

    def overview(self) -> list[dict[str, Any]]:
        return JOBS

    def cancel(self, job_id: str) -> None:
        self.calls.append(("cancel", job_id))

    def stop(self, job_id: str, *, drain: bool) -> str:
        self.calls.append(("stop", job_id, drain))
        if self.fails:
            raise CheckpointError("no disk")
        return "/savepoints/1"


class ClusterExecutor(FakeExecutor):
    def __init__(self, cluster: Cluster | None) -> None:
        super().__init__()
        self.cluster = cluster

    def cluster_jobs(self, configuration: Any) -> Cluster | None:
        return self.cluster


def rows(cluster: Cluster | None, sql: str) -> list[tuple[Any, ...]]:
    tables = TableEnvironment(environment(ClusterExecutor(cluster)))
    return [tuple(row) for row in tables.execute_sql(sql).collect()]


def test_jobs_are_listed_and_described() -> None:
    second = ("b2", "second", "FAILED", datetime(1970, 1, 1, 0, 0, 2, 500_000, UTC))
    assert rows(Cluster(), "SHOW JOBS")[1] == second
    assert rows(Cluster(), "DESCRIBE JOB 'b2'") == [second]
    assert rows(None, "SHOW JOBS") == [], "no cluster was started yet"


def test_a_job_is_stopped() -> None:
    cluster = Cluster()
    assert rows(cluster, "STOP JOB 'a1'") == [("OK",)]
    assert rows(cluster, "STOP JOB 'a1' WITH SAVEPOINT") == [("/savepoints/1",)]
    assert rows(cluster, "STOP JOB 'a1' WITH SAVEPOINT WITH DRAIN") == [("/savepoints/1",)]
    assert cluster.calls == [("cancel", "a1"), ("stop", "a1", False), ("stop", "a1", True)]


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("STOP JOB 'a2'", "there is no job 'a2'"),
        ("DESCRIBE JOB 'a2'", "there is no job 'a2'"),
        ("STOP JOB 'b2'", "the job 'b2' has ended: it is FAILED"),
        ("STOP JOB 'a1' WITH DRAIN", "WITH SAVEPOINT WITH DRAIN"),
        ("STOP JOB 'a1' WITH SAVEPOINT", "the job 'a1' was not stopped: no disk"),
    ],
)
def test_a_job_that_can_not_be_stopped(sql: str, problem: str) -> None:
    cluster = Cluster()
    cluster.fails = True
    with pytest.raises(SqlError) as caught:
        rows(cluster, sql)
    assert problem in caught.value.problem
    assert caught.value.column == sql.index("'") + 1
