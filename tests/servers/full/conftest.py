"""Programs of servers that the profile "full" has. Where they can be had, they must be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.servers.minio.server import ENSURE as ENSURE_MINIO

ENSURE_PROMETHEUS = Path(__file__).parent / "ensure-prometheus.sh"
IMPOSSIBLE = 3


def _had(script: Path) -> Path:
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """Folder of Prometheus's programs."""
    return _had(ENSURE_PROMETHEUS)


@pytest.fixture(scope="session")
def minio_program() -> Path:
    return _had(ENSURE_MINIO)
