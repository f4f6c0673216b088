"""What somebody learns who only listens to the calls between services."""

from __future__ import annotations

import json
import os
import re

import pytest

from firesteel.core.secret import derive, job_secret, spark_secret
from tests.integration.processes.cluster import free_ports, running_cluster, wait_until
from tests.integration.processes.wire import Listener

pytestmark = pytest.mark.timeout(400)
PROGRAM = """
from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
with env.from_collection(range(10)).key_by(lambda i: i % 2).map(lambda i: i).execute_and_collect("sum") as results:
    print("sum:", sum(results))
"""


@pytest.mark.may_skip(reason="only root may listen to the loopback device")
def test_whoever_listens_to_calls_learns_neither_the_secret_of_spark_nor_that_of_a_job() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may listen to the loopback device")
    (port,) = free_ports(1)
    with (
        Listener([port]) as listener,
        running_cluster(options={"taskmanager.rpc.port": port, "firesteel.exchange.transport": "TCP"}) as cluster,
    ):
        program = cluster.folder / "sum.py"
        program.write_text(PROGRAM)
        done = cluster.firesteel("run", "-p", "2", str(program))
        assert done.stdout.splitlines()[-1] == "sum: 45", done.stdout + done.stderr + cluster.logs()
        driver = json.loads((cluster.cluster_directory / "driver.json").read_text())
        # The order to start an executor and the tasks of both slots have come by.
        wait_until(lambda: len(salts(listener)["job"]) == 1, "the salt of the job")
        found = salts(listener)
        heard = listener.heard()
    assert found["spark"] == {driver["spark_salt"]}
    secrets = {
        "the cluster's": cluster.secret,
        "that of calls": derive(cluster.secret, "rpc"),
        "Spark's": spark_secret(cluster.secret, driver["spark_salt"]),
        "the job's": job_secret(cluster.secret, found["job"].pop()),
        "that of the driver's gateway": driver["gateway_secret"],
    }
    for whose, secret in secrets.items():
        assert secret.encode() not in heard, whose


def salts(listener: Listener) -> dict[str, set[str]]:
    """Salts in what was heard."""
    heard = listener.heard()
    found = {"spark": re.findall(rb'"spark_salt":"([0-9a-f]{64})"', heard)}
    found["job"] = re.findall(rb'"salt":"([0-9a-f]{64})"', heard)
    return {kind: {salt.decode() for salt in several} for kind, several in found.items()}
