"""The commands of docs/application-mode.md, as they stand there: only places are others."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.process import wait_gone
from tests.integration.processes.cluster import BIN, PATIENCE, wait_until
from tests.integration.processes.test_application_mode import ENDLESS
from tests.integration.processes.test_application_mode import Home as OneCommand
from tests.integration.processes.test_scripts import Home as Installation
from tests.integration.processes.test_scripts import installed

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
PAGE = Path(__file__).parents[3] / "docs" / "application-mode.md"
PROGRAM = """
import sys
from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(sys.argv[1:]).print()
env.execute("of the page")
print("main has ended", flush=True)
"""


def blocks() -> list[list[str]]:
    """The commands of each block."""
    texts = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block.strip().splitlines() for block in texts]


@pytest.fixture
def home() -> Iterator[OneCommand]:
    """Of somebody who has no cluster."""
    process_of_page = OneCommand()
    try:
        yield process_of_page
    finally:
        process_of_page.close()


@pytest.fixture
def installation() -> Iterator[Installation]:
    """Of somebody who has one in a directory."""
    yield from installed()


def follow(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command of the page; what it has said."""
    path = f"{BIN}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE * 6, cwd=folder,
        env={**environment, "PATH": path}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_one_command(home: OneCommand) -> None:
    home.program("program.py", PROGRAM)
    config = home.conf / "config.yaml"
    more = "slotmanager.number-of-slots.max: 4\n"  # as many as the page's second command wants
    config.write_text(config.read_text().replace("slotmanager.number-of-slots.max: 2\n", more))
    attached, detached = next(block for block in blocks() if block[0].startswith("firesteel run-application"))
    said = follow(attached, home.folder, home.environment())
    home.logs_of(said)
    assert "main has ended" in said
    assert "(program.py) is FINISHED" in said
    said = follow(detached, home.folder, home.environment())
    logs = home.logs_of(said)
    assert re.search(r"application [0-9a-f]{32} \(program\.py\): http://", said), said
    wait_until(lambda: not home.processes(), "the cluster ends with its program", PATIENCE * 4)
    assert "main has ended" in (logs / "dispatcher.out").read_text()


def test_a_service(installation: Installation) -> None:
    (installation.folder / "program.py").write_text(ENDLESS)
    (installation.folder / "my-cluster").symlink_to(installation.home)
    export, start, workers, *stop = next(block for block in blocks() if "standalone-job.sh start" in " ".join(block))
    assert f"(program.py): http://127.0.0.1:{installation.rest}" in follow(
        f"{export}; {start}", installation.folder, installation.environment
    )
    follow(f"{export}; {workers}", installation.folder, installation.environment)

    def runs() -> bool:
        jobs = (installation.get("/jobs/overview") or {"jobs": []})["jobs"]
        return any(job["tasks"]["running"] == job["tasks"]["total"] > 0 for job in jobs if job["name"] == "endless")

    wait_until(runs, "the second job of the program runs", PATIENCE * 4)
    for command in stop:
        follow(f"{export}; {command}", installation.folder, installation.environment)
    assert not wait_gone(installation.processes(), PATIENCE)


def test_every_block_is_known() -> None:
    """That of containers is what deploy/compose says; it needs an engine."""
    command, service, containers = blocks()
    assert len(command) == 2
    assert service[-1].endswith("taskmanager.sh stop")
    assert containers[-1].startswith("docker compose -f docker-compose.yml -f deploy/compose/application.yaml")
