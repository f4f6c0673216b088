"""A job of SQL with each operator that keeps state is exact: killed, stopped, started with other parallelisms."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.integration.processes.cluster import Cluster, running_cluster, wait_until
from tests.integration.processes.test_recovery import jobmaster_of
from tests.integration.processes.test_takeover import completed, restored, state

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.long,
]  # operators without a cluster: tests/unit/sql/test_differential.py

ROWS = 9000
PROGRAM = """
import sys
from firesteel_sql import TableEnvironment

rate, path = sys.argv[1:]
tables = TableEnvironment.create()
for name, columns in (
    ("o", "cur AS CAST(MOD(id, 5) AS INT), amount AS CAST(MOD(id * 37, 101) AS INT)"),
    ("r", "cur AS CAST(MOD(id * 7, 6) AS INT), rate AS CAST(MOD(id * 13, 50) AS INT)"),
):
    tables.execute_sql(
        f"CREATE TABLE {name} (id BIGINT, {columns}, ts AS TO_TIMESTAMP_LTZ(id * 100, 3), "
        f"WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', "
        f"'fields.id.start' = '1', 'fields.id.end' = '{ROWS}', 'rows-per-second' = '{rate}')"
    )
tables.execute_sql(
    "CREATE VIEW versions AS SELECT cur, rate, ts FROM r "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) = 1"
)
QUERIES = {
    "temporal": "v.cur, SUM(rate) FROM o JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.cur = v.cur GROUP BY v.cur",
    "interval": "o.cur, COUNT(r.rate) FROM o LEFT JOIN r ON o.cur = r.cur AND r.ts BETWEEN o.ts - INTERVAL '1' SECOND "
    "AND o.ts GROUP BY o.cur",
    "regular": "MOD(o.id, 10), SUM(r.id) FROM o FULL JOIN r ON o.id = r.id * 2 AND r.rate > 5 GROUP BY MOD(o.id, 10)",
    "not in": "MOD(id, 7), COUNT(*) FROM o WHERE id NOT IN (SELECT id * 3 FROM r) GROUP BY MOD(id, 7)",
    "last": "cur, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) AS n FROM o) WHERE n = 1",
    "top": "n, id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY amount DESC, id) AS n FROM o) WHERE n <= 5",
    "running": "cur, MAX(total) FROM (SELECT cur, SUM(amount) OVER (PARTITION BY cur ORDER BY ts) AS total FROM o) "
    "GROUP BY cur",
    "distinct": "cur, COUNT(DISTINCT amount) FROM o GROUP BY cur",
    "least": "amount, MIN(n) FROM (SELECT amount, cur, COUNT(*) AS n FROM o WHERE amount < 9 GROUP BY amount, cur) "
    "GROUP BY amount",
    "windows": "cur, MAX(n) FROM (SELECT cur, COUNT(*) AS n FROM TABLE(HOP(TABLE o, DESCRIPTOR(ts), INTERVAL '2' "
    "SECOND, INTERVAL '6' SECOND)) GROUP BY window_start, window_end, cur) GROUP BY cur",
    "sessions": "m, COUNT(*) FROM (SELECT MOD(id, 50) AS m, window_start FROM TABLE(SESSION(TABLE o PARTITION BY cur, "
    "DESCRIPTOR(ts), INTERVAL '1' SECOND)) WHERE MOD(id, 50) < 4 GROUP BY MOD(id, 50), window_start, window_end) "
    "GROUP BY m",
    "top of windows": "cur, SUM(id) FROM (SELECT * FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC, id) = 1) GROUP BY cur",
    "sets": "MOD(id, 4), COUNT(*) FROM (SELECT id FROM o EXCEPT ALL SELECT id * 2 FROM r) GROUP BY MOD(id, 4)",
}
tables.execute_sql(
    "CREATE TABLE results (query STRING, k BIGINT, v BIGINT, PRIMARY KEY (query, k) NOT ENFORCED) WITH ('connector' = "
    f"'jdbc', 'url' = 'jdbc:sqlite:{path}', 'table-name' = 'results', 'sink.parallelism' = '1')"
)
union = " UNION ALL ".join(f"SELECT '{name}', {text}" for name, text in QUERIES.items())
tables.execute_sql(
    f"INSERT INTO results SELECT query, COALESCE(k, -1), CAST(v AS BIGINT) FROM ({union}) AS all_queries (query, k, v)"
)
""".replace("{ROWS}", str(ROWS))


def submit(cluster: Cluster, rate: int, database: Path, *options: str) -> str:
    """Start the job; returns its id."""
    program = cluster.folder / "queries.py"
    program.write_text(PROGRAM)
    done = cluster.firesteel("run", "-d", *options, str(program), str(rate), str(database))
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    return str(max(jobs, key=lambda job: job["start-time"])["jid"])


def new_database(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE results (query TEXT, k BIGINT, v BIGINT, PRIMARY KEY (query, k))")
    database.close()
    return path


def results(path: Path) -> list[tuple[str, int, int]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT query, k, v FROM results ORDER BY 1, 2").fetchall()
    database.close()
    return rows


def stop_with_savepoint(cluster: Cluster, job: str) -> str:
    done = cluster.firesteel("stop", "-p", str(cluster.folder / "savepoints"), job)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(/\S*savepoint-\S+)", done.stdout)
    assert found is not None, done.stdout
    return found[1].rstrip(".")


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_job_with_all_stateful_operators_is_exact_whatever_happens(backend: str) -> None:
    options = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100"}
    options |= {"state.backend.type": backend, "execution.checkpointing.interval": "500 ms"}
    with running_cluster(slots=3, options=options, ha=True) as cluster:
        options_of_job = ("-D", f"execution.checkpointing.dir={cluster.folder / 'checkpoints'}")
        calm = new_database(cluster.folder / "calm.db")
        job = submit(cluster, 1_000_000, calm, "-p", "2", *options_of_job)
        wait_until(lambda: state(cluster, job) == "FINISHED", "the job without disturbance ends", 200)
        expected = results(calm)
        assert {query for query, _, _ in expected} == set(re.findall(r'^    "([a-z ]+)": ', PROGRAM, re.MULTILINE))

        stormy = new_database(cluster.folder / "stormy.db")
        job = submit(cluster, 100, stormy, "-p", "1", *options_of_job)
        wait_until(lambda: completed(cluster, job) >= 3, "checkpoints are complete", 120)
        os.kill(cluster.executors()[0].pid, signal.SIGKILL)
        wait_until(lambda: restored(cluster, job) >= 3, "the job goes on in other slots", 120)
        wait_until(lambda: completed(cluster, job) >= restored(cluster, job) + 2, "it takes further checkpoints", 120)

        job = submit(cluster, 100, stormy, "-p", "3", "-s", stop_with_savepoint(cluster, job), *options_of_job)
        wait_until(lambda: completed(cluster, job) >= 2, "checkpoints are complete with three subtasks", 120)
        jobmaster, last = jobmaster_of(cluster.cluster_directory), completed(cluster, job)
        assert jobmaster is not None
        os.kill(jobmaster.pid, signal.SIGKILL)
        wait_until(lambda: restored(cluster, job) >= last, "another JobMaster has restored a checkpoint", 120)
        wait_until(lambda: completed(cluster, job) >= restored(cluster, job) + 2, "it takes further checkpoints", 120)
        assert state(cluster, job) == "RUNNING"

        job = submit(cluster, 1_000_000, stormy, "-p", "2", "-s", stop_with_savepoint(cluster, job), *options_of_job)
        wait_until(lambda: state(cluster, job) == "FINISHED", "the job ends", 200)
        assert results(stormy) == expected
