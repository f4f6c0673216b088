"""docker-compose.yml as a user meets it: up, jobs from the host, more TaskManagers, wrong secrets, down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.servers.compose_cluster import ROOT, SERVICES, ComposeCluster

pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(600),
    pytest.mark.may_skip(reason="a machine where no Docker engine can be had"),
]


def test_words_of_the_image_are_counted_by_a_program_of_the_host(cluster: ComposeCluster) -> None:
    done = cluster.firesteel("run", str(ROOT / "examples" / "word_count.py"), "/opt/firesteel/text/json")
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"^([\d,]+) words in ", done.stdout, re.MULTILINE)
    assert counted is not None, done.stdout
    text = cluster.the("taskmanager").read(
        "/opt/firesteel/text/json/[a-z]*.py"
    )  # Flink reads no files whose names begin with _
    assert int(counted[1].replace(",", "")) == len(re.findall(r"[A-Za-z_]+", text))
