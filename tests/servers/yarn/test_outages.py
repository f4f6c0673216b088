"""What a cluster on YARN leans on is away for a while: the NameNode, ZooKeeper's leader."""

from __future__ import annotations

import time

import pytest

from tests.servers.hadoop.server import NAMENODE, Hadoop, ensure_hadoop
from tests.servers.yarn.cluster import PROPERTIES, Counting, YarnClient, wait_for
from tests.servers.zookeeper.server import ZooKeeper

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
_AWAY_SECONDS = 30.0


def test_a_job_goes_on_while_the_namenode_is_away_and_when_zookeepers_leader_is_killed() -> None:
    properties: dict[str, dict[str, object]] = {
        "yarn-site": PROPERTIES["yarn-site"],
        "hdfs-site": {"dfs.permissions.enabled": "false"},
    }
    zookeeper = ZooKeeper(3)
    try:
        zookeeper.start()
        with Hadoop(ensure_hadoop(), memory_mb=6000, vcores=8, properties=properties) as hadoop:
            hadoop.start_hdfs()
            hadoop.start_yarn()
            client = YarnClient(hadoop)
            client.settings["yarn.staging-directory"] = f"{hadoop.uri}/staging"
            try:
                _outages(client, hadoop, zookeeper)
            finally:
                client.close()
    finally:
        zookeeper.close()


def _outages(client: YarnClient, hadoop: Hadoop, zookeeper: ZooKeeper) -> None:
    session = client.session(
        **zookeeper.settings(f"{hadoop.uri}/payloads", "12 s"), **{"restart-strategy.type": "none"}
    )
    job = Counting(client.folder)
    job.settings |= {
        "execution.checkpointing.dir": f"{hadoop.uri}/checkpoints",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    }
    job.run(session)
    attempt = session.attempt()

    def goes_on(what: str) -> None:
        before = session.checkpoint(job.job)
        wait_for(
            lambda: session.checkpoint(job.job) >= before + 2, lambda: f"{what}, checkpoints go on: {client.logs()}"
        )
        assert session.state(job.job) == "RUNNING"
        assert session.checkpoint(job.job, "restored") == 0, f"{what}, and the job was restarted"

    with hadoop.away(NAMENODE):
        before = job.lines()
        time.sleep(_AWAY_SECONDS)
        assert job.lines() > before, "records flow without the NameNode"
    goes_on("the NameNode was away")
    zookeeper.leader().kill()
    goes_on("ZooKeeper's leader was killed")
    assert session.attempt() == attempt, "the ApplicationMaster has stayed"
    job.ends_right(session)
