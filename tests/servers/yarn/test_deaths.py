"""Whoever dies on YARN: nothing is lost and nothing doubled; and what people are told of it."""

from __future__ import annotations

import os
import re
import signal
from functools import partial

import pytest

from firesteel.core.process import is_running, kill
from tests.servers.hadoop.server import RESOURCEMANAGER
from tests.servers.yarn.cluster import MASTER, Application, Counting, YarnClient, wait_for
from tests.servers.zookeeper.server import ZooKeeper

_YARN = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
"""What ``yarn application`` runs."""
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


def resourcemanager_log(client: YarnClient, application: Application) -> str:
    files = client.yarn.folder.glob(f"nodemanager-*/logs/{application.id}/*/resourcemanager.log")
    return "".join(file.read_text() for file in files)


def test_services_containers_and_yarns_own_resourcemanager_die(
    client: YarnClient, zookeeper_of_yarn: ZooKeeper
) -> None:
    session = client.session(
        **zookeeper_of_yarn.settings(client.folder / "payloads", "12 s"),
        **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100",
           "restart-strategy.fixed-delay.delay": "1 s", "resourcemanager.taskmanager-timeout": "5 s"},
    )  # fmt: skip
    job = Counting(client.folder)
    job.run(session)

    def goes_on() -> None:
        before = session.checkpoint(job.job)
        wait_for(lambda: session.checkpoint(job.job) >= before + 2, lambda: f"checkpoints go on: {client.logs()}")

    attempt = session.attempt()
    for name in ("firesteel_dispatcher", "firesteel_resourcemanager", "firesteel_jobmaster"):
        process = session.process(name)
        assert process is not None
        kill(process)
        wait_for(partial(_is_back, session, name, process.pid), f"{name} is started again")
        wait_for(lambda: session.state(job.job) == "RUNNING", "the job runs")
        goes_on()
    assert session.attempt() == attempt, "the container of the ApplicationMaster has stayed"

    first = session.process("firesteel_taskmanager")
    assert first is not None
    kill(first)
    wait_for(
        lambda: (taskmanager := session.process("firesteel_taskmanager")) is not None and taskmanager.pid != first.pid,
        "another container is asked for",
    )
    goes_on()
    assert re.search(r"has ended with 137: it was killed", resourcemanager_log(client, session))

    second = session.process("firesteel_taskmanager")
    assert second is not None
    client.yarn.daemons["resourcemanager"].kill()
    goes_on_without = job.lines()
    client.yarn.start("resourcemanager")
    assert is_running(second)
    wait_for(lambda: job.lines() > goes_on_without, "slots have gone on")
    goes_on()
    job.ends_right(session)
    wait_for(lambda: not is_running(second), "an idle container is given back")


def _is_back(session: Application, name: str, pid: int) -> bool:
    process = session.process(name)
    return process is not None and process.pid != pid


def test_attempts_are_used_up(client: YarnClient) -> None:
    session = client.session(**{"yarn.application-attempts": "1"})
    master = session.process(MASTER)
    assert master is not None
    kill(master)
    ended = session.wait_ended()
    assert ended["state"] == "FAILED"
    assert "failed 1 times" in ended["diagnostics"]
    wait_for(lambda: not client.processes(), "nothing is left")
    assert staged(client) == [session.id], "nobody was there to remove it"
    refused = client.firesteel("yarn-session", "-d", more={"yarn.ship-files": "/does/not/exist"})
    assert refused.returncode != 0
    assert staged(client) == [], "whoever comes next has removed it"


def test_an_application_is_killed_by_its_user(client: YarnClient) -> None:
    """By YARN's own command: nobody of the cluster hears of it before."""
    session = client.session()
    assert client.processes()
    client.yarn.daemons[RESOURCEMANAGER].run(_YARN, "application", "-kill", session.id)
    assert session.wait_ended()["state"] == "KILLED"
    wait_for(lambda: not client.processes(), "no process is left")
    assert staged(client) == [session.id], "nobody was there to remove it"
    refused = client.firesteel("yarn-session", "-d", more={"yarn.ship-files": "/does/not/exist"})
    assert refused.returncode != 0
    assert staged(client) == [], "whoever comes next has removed it"


def staged(client: YarnClient) -> list[str]:
    """Applications that have a staging directory."""
    return sorted(path.name for path in client.staging.glob(".firesteel/application_*"))


def test_a_service_that_does_not_get_up_ends_the_last_attempt_with_its_reason(client: YarnClient) -> None:
    more = {"high-availability.type": "zookeeper", "high-availability.storageDir": str(client.folder / "payloads")}
    done = client.firesteel("yarn-session", "-d", more=more)
    assert done.returncode == 1
    assert "refuses its configuration" in done.stderr
    assert "high-availability.zookeeper.quorum" in done.stderr, done.stderr


def test_a_full_queue_is_named(client: YarnClient) -> None:
    """The job waits for its TaskManager, and gets it when there is room."""
    first = client.session(**{"jobmanager.memory.process.size": "5900m"})
    second = client.session(**{"jobmanager.memory.process.size": "4800m"})
    path = client.folder / "one.py"
    path.write_text(
        "from firesteel.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute('one')\n"
    )
    done = client.firesteel("run", "-d", "-t", "yarn-session", str(path), more=second.named())
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = re.findall(r"JobID ([0-9a-f]{32})", done.stdout + done.stderr)
    wait_for(
        lambda: "no container of 1400 MiB" in str(second.rest(f"/jobs/{job}").get("firesteel-waiting-for")),
        lambda: f"it is said what is waited for: {second.rest(f'/jobs/{job}')}",
    )
    stopped = client.firesteel("yarn-session", "--stop", "-id", first.id)
    assert stopped.returncode == 0, stopped.stderr
    wait_for(lambda: second.state(job) == "FINISHED", lambda: f"the job ends: {client.logs()}")


def test_a_container_over_its_memory_says_in_the_jobs_exception_what_to_set(client: YarnClient) -> None:
    """YARN counts pages for each process that uses them, the TaskManager divides them: so no slot is over its share."""
    session = client.session(**{"restart-strategy.type": "none", "taskmanager.memory.jvm-overhead.min": "128m"})
    path = client.folder / "greedy.py"
    path.write_text(
        "import pathlib, subprocess, sys\n"
        "from firesteel.datastream import StreamExecutionEnvironment\n"
        "reads = 'import mmap, os, sys, time; shared = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, '\\\n"
        "    'prot=mmap.PROT_READ); shared[::4096]; time.sleep(600)'\n"
        "def eat(value):\n"
        "    large = pathlib.Path('large')\n"
        "    large.write_bytes(bytes(200 << 20))\n"
        "    eaters = [subprocess.Popen([sys.executable, '-c', reads, str(large)]) for _ in range(12)]\n"
        "    [eater.wait() for eater in eaters]\n"
        "    return value\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).map(eat).print()\n"
        "env.execute('greedy')\n"
    )
    done = client.firesteel("run", "-d", "-t", "yarn-session", str(path), more=session.named())
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = re.findall(r"JobID ([0-9a-f]{32})", done.stdout + done.stderr)
    wait_for(lambda: session.state(job) == "FAILED", lambda: f"the job fails: {client.logs()}")
    root = session.rest(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"]
    assert "has used more memory than it has (taskmanager.memory.process.size is 1400 MiB): raise it" in root, root
    assert "taskmanager.memory.jvm-overhead.min (140 MiB)" in root, root


def test_a_node_is_lost(client: YarnClient, zookeeper_of_yarn: ZooKeeper) -> None:
    session = client.session(
        **zookeeper_of_yarn.settings(client.folder / "payloads", "12 s"),
        **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "100",
           "restart-strategy.fixed-delay.delay": "1 s"},
    )  # fmt: skip
    job = Counting(client.folder)
    job.run(session)
    taskmanager = session.process("firesteel_taskmanager")
    assert taskmanager is not None
    where = os.readlink(f"/proc/{taskmanager.pid}/cwd")
    (number,) = re.findall(r"nodemanager-(\d)", where)
    name = f"nodemanager-{number}"
    before = session.checkpoint(job.job)
    mine = [process for process in client.processes() if name in os.readlink(f"/proc/{process.pid}/cwd")]
    with client.yarn.away(name):
        for process in mine:
            if is_running(process):
                os.kill(process.pid, signal.SIGKILL)
        wait_for(
            lambda: session.checkpoint(job.job, "restored") >= before,
            lambda: f"the job goes on elsewhere: {client.logs()}",
        )
    job.ends_right(session)
