"""Helm. Where it can be had, it must be; elsewhere its tests are skipped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.servers.helm.chart import ENSURE, IMPOSSIBLE


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of helm and kubectl."""
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())
