"""The commands of docs/yarn.md, as they stand there: only ids and places are others."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.processes.cluster import BIN
from tests.servers.yarn.cluster import PATIENCE, Application, YarnClient
from tests.servers.zookeeper.server import ZooKeeper

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]
PAGE = Path(__file__).parents[3] / "docs" / "yarn.md"
ANY_ID = "application_1732402800000_0001"
PROGRAM = """
import sys
from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["one", *sys.argv[1:]]).print()
env.execute("of the page")
"""


def blocks() -> list[list[str]]:
    """The commands of each block."""
    texts = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block.replace("\\\n", " ").strip().splitlines() for block in texts]


class Reader:
    """Somebody who follows the page."""

    def __init__(self, client: YarnClient) -> None:
        self.client = client
        self.conf = client.folder / "conf"
        self.conf.mkdir()
        settings = {key: text for key, text in client.settings.items() if "memory" not in key}
        (self.conf / "config.yaml").write_text(yaml.safe_dump(settings))
        (client.folder / "program.py").write_text(PROGRAM)
        self.application = ANY_ID

    def follows(self, command: str, **instead: str) -> str:
        """Run a command of the page; returns what it has said."""
        for placeholder, other in {ANY_ID: self.application, **instead}.items():
            command = command.replace(placeholder, other)
        environment = self.client.environment() | {"FIRESTEEL_CONF_DIR": str(self.conf)}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, env=environment, cwd=self.client.folder,
            timeout=2 * PATIENCE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = done.stdout + done.stderr
        for application_id in re.findall(r"application_\d+_\d+", said):
            self.application = application_id
            if application_id not in self.client.applications:
                self.client.applications.append(application_id)
        assert done.returncode == 0, f"{command}\n{said}{self.client.logs()}"
        return said


def test_a_session_of_the_page(client: YarnClient) -> None:
    reader = Reader(client)
    start, run, look, stop = next(block for block in blocks() if block[0].startswith("firesteel yarn-session -d -s"))
    assert "session cluster at http" in reader.follows(start)
    assert "JobID" in reader.follows(run)
    assert "No running jobs." in reader.follows(look)
    assert "FINISHED, SUCCEEDED" in reader.follows(stop)


def test_a_program_of_the_page(client: YarnClient) -> None:
    reader = Reader(client)
    ((run,),) = [block for block in blocks() if block[0].startswith("firesteel run-application")]
    assert "FINISHED/SUCCEEDED" in reader.follows(run)


def test_a_session_of_the_page_with_zookeeper(client: YarnClient, zookeeper_of_yarn: ZooKeeper) -> None:
    reader = Reader(client)
    ((start,),) = [block for block in blocks() if "quorum" in block[0]]
    quorum = re.search(r"quorum=(\S+)", start)
    assert quorum is not None
    said = reader.follows(
        start, **{quorum[1]: zookeeper_of_yarn.quorum, "s3://bucket/firesteel": str(client.folder / "payloads")}
    )
    assert "session cluster at http" in said
    session = Application(client, reader.application)
    assert session.report()["state"] == "RUNNING"
    assert list((client.folder / "payloads").iterdir()), "what has to outlive the host is kept there"


def test_every_block_of_the_page_is_run() -> None:
    assert len(blocks()) == 3
