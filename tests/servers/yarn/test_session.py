"""A session on YARN: its job goes on, exactly once, when the ApplicationMaster is killed; it ends in order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from firesteel.core.process import is_running, kill
from tests.servers.yarn.cluster import MASTER, Counting, YarnClient, wait_for
from tests.servers.zookeeper.server import ZooKeeper

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


def test_a_job_goes_on_when_the_applicationmaster_is_killed(client: YarnClient, zookeeper_of_yarn: ZooKeeper) -> None:
    payloads = client.folder / "payloads"
    session = client.session(
        **zookeeper_of_yarn.settings(payloads, "12 s"), **{"restart-strategy.type": "none", "yarn.tags": "of-tests"}
    )
    report = session.report()
    assert (report["state"], report["applicationType"], report["applicationTags"]) == (
        "RUNNING",
        "Firesteel",
        "of-tests",
    )
    assert "dashboard/app.js" in session.page()
    job = Counting(client.folder)
    job.run(session)
    listed = session.firesteel("list")
    assert f"{job.job} : counts (RUNNING)" in listed.stdout, listed.stdout + listed.stderr

    master, taskmanager = session.process(MASTER), session.process("firesteel_taskmanager")
    assert master is not None
    assert taskmanager is not None
    before, attempt = session.checkpoint(job.job), session.attempt()
    others = [process for process in client.processes() if _is_of_master(process.pid)]
    kill(master)
    killed = time.monotonic()
    wait_for(lambda: not any(map(is_running, others)), "nothing of the attempt is left")
    at_death = job.lines()
    wait_for(lambda: session.attempt() > attempt, "YARN starts the next attempt")
    wait_for(
        lambda: session.checkpoint(job.job, "restored") >= before,
        lambda: f"the job goes on from a checkpoint: {client.logs()}",
    )
    print(f"{time.monotonic() - killed:.1f} s from the ApplicationMaster's death to the restored job")
    assert is_running(taskmanager), "the TaskManager's container goes on"
    assert job.lines() > at_death, "its slots go on while there is no ApplicationMaster"
    job.ends_right(session)

    stopped = client.firesteel("yarn-session", "--stop", "-id", session.id)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    ended = session.wait_ended()
    assert (ended["state"], ended["finalStatus"]) == ("FINISHED", "SUCCEEDED"), ended["diagnostics"]
    wait_for(lambda: not client.processes(), "containers have ended")
    assert not list(client.staging.glob(".firesteel/application_*")), "what was staged goes with the application"


def _is_of_master(pid: int) -> bool:
    try:
        return b"_000001" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
