"""A YARN that is shared: another queue takes its room back, some nodes are for some containers, and not everybody may
end what others run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from firesteel.core.process import ProcessId, is_running
from tests.servers.hadoop.server import RESOURCEMANAGER, Hadoop, ensure_hadoop
from tests.servers.yarn.cluster import MASTER, PROPERTIES, Application, Counting, YarnClient, wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
_QUEUES = "yarn.scheduler.capacity.root"
_MONITOR = "yarn.resourcemanager.monitor.capacity.preemption"
_POLICY = "org.apache.hadoop.yarn.server.resourcemanager.monitor.capacity.ProportionalCapacityPreemptionPolicy"
_MASTER_MB, _TASKMANAGER_MB = 1216, 1408
"""Multiples of the least that YARN gives; a node has room for one of each."""


def preempting() -> dict[str, dict[str, object]]:
    """Two queues, each with half of it, and more while the other one does not need it."""
    halves: dict[str, object] = {f"{_QUEUES}.queues": "ours,theirs"}
    for queue in ("ours", "theirs"):
        halves |= {
            f"{_QUEUES}.{queue}.capacity": 50, f"{_QUEUES}.{queue}.maximum-capacity": 100,
            f"{_QUEUES}.{queue}.user-limit-factor": 10, f"{_QUEUES}.{queue}.maximum-am-resource-percent": 1.0,
        }  # fmt: skip
    monitor: dict[str, object] = {
        "yarn.resourcemanager.scheduler.monitor.enable": "true",
        "yarn.resourcemanager.scheduler.monitor.policies": _POLICY,
        f"{_MONITOR}.monitoring_interval": 1000, f"{_MONITOR}.max_wait_before_kill": 2000,
        f"{_MONITOR}.total_preemption_per_round": 1.0, f"{_MONITOR}.natural_termination_factor": 1.0,
        f"{_MONITOR}.max_ignored_over_capacity": 0.0,
    }  # fmt: skip
    return {**PROPERTIES, "yarn-site": {**PROPERTIES["yarn-site"], **monitor}, "capacity-scheduler": halves}


def labelled() -> dict[str, dict[str, object]]:
    """Nodes may have the label ``fast``, and then only those get there who ask for it."""
    labels: dict[str, object] = {
        "yarn.node-labels.enabled": "true", "yarn.node-labels.fs-store.root-dir": "LABELS",
    }  # fmt: skip
    all_of_it: dict[str, object] = {}
    for queue in (_QUEUES, f"{_QUEUES}.default"):
        all_of_it |= {
            f"{queue}.accessible-node-labels": "fast", f"{queue}.accessible-node-labels.fast.capacity": 100,
            f"{queue}.accessible-node-labels.fast.maximum-capacity": 100,
        }  # fmt: skip
    return {**PROPERTIES, "yarn-site": {**PROPERTIES["yarn-site"], **labels}, "capacity-scheduler": all_of_it}


def guarded() -> dict[str, dict[str, object]]:
    """Nobody but its user may see or end an application, or whom that user names; and applications have priorities."""
    acls: dict[str, object] = {
        "yarn.acl.enable": "true", "yarn.admin.acl": "nobody", "yarn.cluster.max-application-priority": 10,
    }  # fmt: skip
    nobody: dict[str, object] = {f"{_QUEUES}.acl_administer_queue": " "}
    return {**PROPERTIES, "yarn-site": {**PROPERTIES["yarn-site"], **acls}, "capacity-scheduler": nobody}


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Iterator[YarnClient]:
    """A YARN of the test's own, and its client."""
    properties, memory_mb = request.param
    with Hadoop(ensure_hadoop(), memory_mb=memory_mb, vcores=8, properties=properties) as yarn:
        if "yarn.node-labels.enabled" in properties["yarn-site"]:
            site = yarn.conf / "yarn-site.xml"
            site.write_text(site.read_text().replace("LABELS", f"file://{yarn.folder}/labels"))
        yarn.start_yarn()
        client = YarnClient(yarn)
        client.settings |= {
            "jobmanager.memory.process.size": f"{_MASTER_MB}m",
            "taskmanager.memory.process.size": f"{_TASKMANAGER_MB}m",
        }
        try:
            yield client
        finally:
            client.close()


def _taskmanagers(client: YarnClient, session: Application) -> list[ProcessId]:
    """TaskManagers of a session that run."""
    mark = session.id.partition("_")[2]
    processes = []
    for process in client.processes():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "firesteel_taskmanager" in words and mark in environment:
            processes.append(process)
    return processes


@pytest.mark.parametrize("shared", [(preempting(), _MASTER_MB + _TASKMANAGER_MB)], indirect=True, ids=["two queues"])
def test_another_queue_takes_its_room_back(shared: YarnClient) -> None:
    client = shared
    session = client.session(
        **{"yarn.application.queue": "ours", "restart-strategy.type": "fixed-delay",
           "restart-strategy.fixed-delay.attempts": "100", "restart-strategy.fixed-delay.delay": "1 s"}
    )  # fmt: skip
    job = Counting(client.folder)
    job.run(session, parallelism=2)
    before = _taskmanagers(client, session)
    assert len(before) == 2

    theirs = client.session(
        **{"yarn.application.queue": "theirs", "jobmanager.memory.process.size": f"{_TASKMANAGER_MB}m"}
    )
    assert not all(map(is_running, before)), "there was no room without it"
    wait_for(
        lambda: "it was preempted: YARN needs its room for others" in str(session.rest(f"/jobs/{job.job}/exceptions")),
        lambda: f"the job says why: {session.rest(f'/jobs/{job.job}/exceptions')}",
    )
    stopped = client.firesteel("yarn-session", "--stop", "-id", theirs.id)
    assert stopped.returncode == 0, stopped.stderr
    wait_for(lambda: len(_taskmanagers(client, session)) == 2, lambda: f"it is replaced: {client.logs()}")
    wait_for(lambda: session.checkpoint(job.job, "restored") > 0, lambda: f"the job goes on: {client.logs()}")
    job.ends_right(session)


@pytest.mark.parametrize("shared", [(labelled(), 6000)], indirect=True, ids=["labels"])
def test_taskmanagers_run_on_nodes_with_their_label(shared: YarnClient) -> None:
    client = shared
    words = client.yarn.daemons["nodemanager-1"].words
    (node,) = re.findall(r"yarn\.nodemanager\.address=(\S+)", "\n".join(words))
    admin = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
    for more in (("-addToClusterNodeLabels", "fast(exclusive=true)"), ("-replaceLabelsOnNode", f"{node}=fast")):
        client.yarn.daemons[RESOURCEMANAGER].run(admin, *more)
    session = client.session(**{"yarn.taskmanager.node-label": "fast", "taskmanager.numberOfTaskSlots": "1"})
    job = Counting(client.folder)
    job.run(session, parallelism=2)
    master = session.process(MASTER)
    assert master is not None
    assert "nodemanager-0" in os.readlink(f"/proc/{master.pid}/cwd")
    where = [os.readlink(f"/proc/{taskmanager.pid}/cwd") for taskmanager in _taskmanagers(client, session)]
    assert len(where) == 2
    assert all("nodemanager-1" in folder for folder in where), where
    job.ends_right(session)


@pytest.mark.parametrize("shared", [(guarded(), 6000)], indirect=True, ids=["rights"])
def test_an_application_is_seen_and_ended_by_those_who_may(shared: YarnClient) -> None:
    client = shared
    rights = {"yarn.view.acls": "viewer", "yarn.modify.acls": "deputy", "yarn.application.priority": "5"}
    session = client.session(**rights)
    assert session.report()["priority"] == 5
    command, master = client.yarn.daemons[RESOURCEMANAGER], session.process(MASTER)
    assert master is not None
    application = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"

    def answer_to(user: str, *words: str) -> str:
        log = command.folder / "log"
        before = len(log.read_text())
        with suppress(AssertionError):  # who is refused
            command.run(application, "application", *words, session.id, HADOOP_USER_NAME=user)
        return log.read_text()[before:]

    addresses = {
        user: re.findall(r"Tracking-URL : (\S+)", answer_to(user, "-status")) for user in ("viewer", "stranger")
    }
    assert addresses["stranger"] == ["N/A"]
    assert len(addresses["viewer"]) == 1
    assert addresses["viewer"] != ["N/A"]
    for user in ("stranger", "viewer"):
        assert "cannot perform operation MODIFY_APP" in answer_to(user, "-kill")
    assert is_running(master)
    answer_to("deputy", "-kill")
    assert session.wait_ended()["state"] == "KILLED"
