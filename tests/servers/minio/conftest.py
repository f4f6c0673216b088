"""MinIO servers. Where one can be built, it must be; elsewhere these tests are skipped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.servers.minio.server import BUCKET, ENSURE, MinioServer, can_mount

IMPOSSIBLE = 3
MEGABYTES = 256


@pytest.fixture(scope="session")
def program() -> str:
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def minio(program: str) -> Iterator[MinioServer]:
    """A server with a bucket; its disk is small and of its own, where that can be had."""
    server = MinioServer(program, {"MINIO_DOMAIN": "store.test"}, megabytes=MEGABYTES if can_mount() else None)
    try:
        server.start()
        server.client().make_bucket(BUCKET)
        yield server
    finally:
        server.close()


@pytest.fixture
def own_disk() -> None:
    """The server's disk can be filled, and be made read-only."""
    if not can_mount():
        pytest.skip("only root can make disks, on a machine that lets it mount")
