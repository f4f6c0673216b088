"""A PostgreSQL server. Where one can be had, it must be; elsewhere these tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.integration.recovery.places import Embedded, embedded
from tests.integration.recovery.stepped_storage import plugin
from tests.servers.postgresql.server import ENSURE, PostgresServer

IMPOSSIBLE = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    server = PostgresServer(done.stdout.strip())
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def here(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """The embedded cluster; its slots are processes."""
    with plugin(tmp_path_factory.mktemp("plugin")), embedded() as place:
        yield place
