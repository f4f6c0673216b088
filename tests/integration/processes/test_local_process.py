"""A cluster without TaskManagers of its own: the ResourceManager starts them as jobs need them, and stops them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from firesteel.core.process import ProcessId, wait_gone
from firesteel.service.pid_file import read_pid_file
from tests.integration.processes.cluster import BIN, COORDINATORS, Cluster, wait_until
from tests.integration.processes.test_open_doors import ENDLESS, records, running_tasks

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A Dispatcher, a JobMaster host and a ResourceManager."""
    local_cluster = Cluster(
        slots=1,
        options={"firesteel.resourcemanager.driver": "local-process", "resourcemanager.taskmanager-timeout": "3 s"},
    )
    try:
        for service in [local_cluster.launch(name) for name in ("resourcemanager", "jobmaster", "dispatcher")]:
            service.wait_listening()
        yield local_cluster
    except BaseException:
        print(
            local_cluster.logs(),
            *(f.read_text() for f in local_cluster.cluster_directory.glob("workers/*.log")),
            sep="\n",
        )
        raise
    finally:
        local_cluster.close()


def workers(cluster: Cluster) -> set[ProcessId]:
    """Those whose pid files are there."""
    processes = map(read_pid_file, (cluster.cluster_directory / "workers").glob("*.pid"))
    return {process for process in processes if process is not None}


def goes_on(cluster: Cluster) -> None:
    seen = records(cluster)
    wait_until(lambda: records(cluster) > seen, "the job goes on")


def completed(cluster: Cluster, line: str) -> list[str]:
    """What a shell hears that asks the command how a line goes on."""
    answer = cluster.folder / "completions"
    asking = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    where = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    command = [*cluster.client_prefix, str(BIN / "firesteel")]
    subprocess.run(command, env={**cluster.environment(), **asking, **where}, timeout=60, stdin=subprocess.DEVNULL)
    return [word.strip() for word in answer.read_text().splitlines()]


def test_taskmanagers_come_with_jobs_outlive_the_resourcemanager_and_go(cluster: Cluster) -> None:
    assert not workers(cluster)
    program = cluster.folder / "endless.py"
    program.write_text(ENDLESS)
    done = cluster.firesteel("run", "-d", "-p", "2", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
    started = workers(cluster)
    assert len(started) == 2
    _, overview = cluster.rest("GET", "/taskmanagers")
    assert all(shown["id"].startswith("worker-") for shown in overview["taskmanagers"]), json.dumps(overview)

    for end in (signal.SIGKILL, signal.SIGTERM):
        cluster.the("resourcemanager").signal(end)
        cluster.the("resourcemanager").wait()
        assert workers(cluster) == started
        cluster.start("resourcemanager")
        cluster.wait_slots(2)
        goes_on(cluster)
        assert workers(cluster) == started

    (job,) = cluster.rest("GET", "/jobs/overview")[1]["jobs"]
    # whoever presses Tab waits two seconds for a cluster at most; a busy machine may need longer
    wait_until(lambda: job["jid"] in completed(cluster, "firesteel cancel "), "the id of the job is offered")
    assert cluster.firesteel("cancel", job["jid"]).returncode == 0
    wait_until(lambda: not workers(cluster), "workers that nobody uses are stopped")
    assert not cluster.executors()


@pytest.mark.long  # of a cluster that the scripts have started: test_scripts.py
def test_the_end_of_the_cluster_leaves_no_taskmanager(cluster: Cluster) -> None:
    program = cluster.folder / "endless.py"
    program.write_text(ENDLESS)
    done = cluster.firesteel("run", "-d", "-p", "2", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: running_tasks(cluster) == 4, "all tasks run")
    assert len(workers(cluster)) == 2
    assert cluster.rest("DELETE", "/cluster", token=False)[0] == 401
    assert cluster.rest("DELETE", "/cluster") == (200, {})
    for name in COORDINATORS:
        assert cluster.the(name).wait() == 0
    assert not workers(cluster)
    assert not wait_gone(cluster.processes(), 10)
    assert not list((cluster.cluster_directory / "workers" / "conf").iterdir()), "the secret is left"
