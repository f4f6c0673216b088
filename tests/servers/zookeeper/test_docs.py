"""What docs/high-availability.md says of a cluster on ZooKeeper, followed on two hosts: directories, here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.processes.test_scripts import Home, installed
from tests.servers.zookeeper.server import ZooKeeper
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
PAGE = Path(__file__).parents[3] / "docs" / "high-availability.md"
_PATIENCE = 100.0


@pytest.fixture
def host_a() -> Iterator[Home]:
    yield from installed()


@pytest.fixture
def host_b() -> Iterator[Home]:
    yield from installed()


def test_two_hosts_of_the_page(zookeeper: ZooKeeper, host_a: Home, host_b: Home, tmp_path: Path) -> None:
    text = PAGE.read_text()
    of_the_page = next(
        yaml.safe_load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if "firesteel.cluster.directory" in block
    )
    page_says = {
        "high-availability.zookeeper.quorum": zookeeper.quorum,
        "high-availability.storageDir": str(tmp_path / "ha"),
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "jobmanager.rpc.address": "127.0.0.1",
    }
    assert page_says.keys() < of_the_page.keys()
    secret = "0123456789abcdef" * 2
    for host in (host_a, host_b):
        own = {**of_the_page, **page_says, "firesteel.cluster.directory": str(host.folder / "cluster")}
        own["high-availability.zookeeper.client.session-timeout"] = "4 s"
        config = host.conf / "config.yaml"
        before = {key: value for key, value in yaml.safe_load(config.read_text()).items() if key not in own}
        config.write_text(yaml.safe_dump({**before, **own}))
        (host.conf / "cluster-secret").write_text(secret)
        (host.conf / "cluster-secret").chmod(0o600)

    assert "Start `jobmanager.sh start` on two hosts and `taskmanager.sh start` on the others" in text
    for host in (host_a, host_b):
        code, said = host.run("jobmanager.sh", "start")
        assert code == 0, said
    assert any("stands by" in line for line in said), said
    code, said = host_b.run("taskmanager.sh", "start")
    assert code == 0, said

    def slots(host: Home) -> int:
        return int((host.get("/overview") or {}).get("slots-total", 0))

    wait_until(lambda: slots(host_a) == 1, "the TaskManager has found the leader by ZooKeeper", _PATIENCE)
    code, said = host_a.run("jobmanager.sh", "stop")
    assert code == 0, said
    wait_until(lambda: slots(host_b) == 1, "the other host leads, and has its TaskManager", _PATIENCE)
    for host in (host_b, host_a):
        code, said = host.run("stop-cluster.sh")
        assert code == 0, said
    assert host_b.left() == []
