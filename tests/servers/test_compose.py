"""docker-compose.yml as a user meets it: up, jobs from the host, more TaskManagers, wrong secrets, down."""

from __future__ import annotations

import re

import pytest

from tests.servers.compose_cluster import ROOT, SERVICES, ComposeCluster
from tests.servers.conftest import SLOTS

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.may_skip(reason="a machine where no Docker engine can be had"),
]
WORD_COUNT = str(ROOT / "examples" / "word_count.py")
TEXT = "/opt/firesteel/text/json"
SOURCES = f"{TEXT}/[a-z]*.py"  # Flink reads no files whose names begin with _

AS_ON_OPENSHIFT = {"user": "1000700000:0", "read_only": True, "tmpfs": ["/tmp"]}
"""A user of the platform's choice, and nothing to be written but volumes and /tmp, from which no program runs."""


def words_counted(output: str) -> int:
    """The last figure of the word count."""
    counted = re.search(r"^([\d,]+) words in ", output, re.MULTILINE)
    assert counted is not None, output
    return int(counted[1].replace(",", ""))


def test_words_of_the_image_are_counted_by_a_program_of_the_host(cluster: ComposeCluster) -> None:
    done = cluster.firesteel("run", WORD_COUNT, TEXT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert words_counted(done.stdout) == len(re.findall(r"[A-Za-z_]+", cluster.the("taskmanager").read(SOURCES)))


@pytest.mark.parametrize("secret", [None, "another secret, just as long as it has to be"])
def test_nobody_submits_without_the_secret(cluster: ComposeCluster, secret: str | None) -> None:
    done = cluster.firesteel("run", WORD_COUNT, TEXT, secret=secret)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    (sentence,) = done.stderr.splitlines()
    assert "secret" in sentence or "token" in sentence


def test_with_nothing_exported_a_cluster_of_some_user_makes_its_secret_and_tells_who_may_use_docker(image: str) -> None:
    cluster_ = ComposeCluster(image, secret="", container=AS_ON_OPENSHIFT)
    try:
        cluster_.up()
        tell = ("exec", "-T", "dispatcher", "cat", "/var/lib/firesteel-secret/secret")
        secret = cluster_.call(*tell).stdout
        assert len(bytes.fromhex(secret)) == 32
        assert cluster_.firesteel("run", WORD_COUNT, TEXT, secret=None).returncode != 0
        done = cluster_.firesteel("run", WORD_COUNT, TEXT, secret=secret)
        assert done.returncode == 0, done.stdout + done.stderr
        cluster_.call("up", "--no-build", "secret")
        assert cluster_.call(*tell).stdout == secret, "the next start finds it"
    finally:
        cluster_.close()


def test_a_secret_that_is_too_short_is_refused_before_a_service_starts(image: str) -> None:
    cluster_ = ComposeCluster(image, secret="short")
    try:
        done = cluster_.call("up", "--detach", "--wait", "--no-build", check=False)
        assert done.returncode != 0
        assert 'service "secret" didn\'t complete successfully' in done.stderr
        (line,) = cluster_.call("logs", "--no-color", "--no-log-prefix", "secret").stdout.splitlines()
        assert "FIRESTEEL_SECRET" in line
        assert "16" in line
        assert not any(container.pid() for name in SERVICES for container in cluster_.all(name))
    finally:
        cluster_.close()


def test_three_taskmanagers_run_a_job(cluster: ComposeCluster) -> None:
    try:
        cluster.up("--scale", "taskmanager=3")
        assert len(cluster.all("taskmanager")) == 3
        cluster.wait_slots(3 * SLOTS)
        done = cluster.firesteel("run", "-p", "6", WORD_COUNT, TEXT)
        assert done.returncode == 0, done.stdout + done.stderr
        text = cluster.all("taskmanager")[0].read(SOURCES)
        assert words_counted(done.stdout) == len(re.findall(r"[A-Za-z_]+", text))
        job = max(cluster.ask("/jobs/overview")["jobs"], key=lambda job_row: int(job_row["start-time"]))
        vertices = cluster.ask(f"/jobs/{job['jid']}")["vertices"]
        assert vertices[0]["parallelism"] == 6
        subtasks = cluster.ask(f"/jobs/{job['jid']}/vertices/{vertices[0]['id']}")["subtasks"]
        assert len({subtask["taskmanager-id"] for subtask in subtasks}) == 3
    finally:
        cluster.up("--scale", "taskmanager=1")


def test_the_services_stop_in_order_and_leave_nothing(cluster: ComposeCluster) -> None:
    containers = [container for name in SERVICES for container in cluster.all(name)]
    volumes = {mount["Name"] for container in containers for mount in container.inspect()["Mounts"]}
    assert all(name.startswith(cluster.project) for name in volumes), "none is without a name, which would stay"
    cluster.call("stop")
    codes = {f"{container.service} {container.id}": container.state()["ExitCode"] for container in containers}
    assert set(codes.values()) == {0}, codes
    cluster.down()
    assert cluster.left() == []
    cluster.up()
    cluster.wait_slots(SLOTS)
