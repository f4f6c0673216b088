"""Control planes of Kubernetes. Where they can be built, they must be; elsewhere these tests are skipped, and say why.

They are marked ``long``: the programs take eight minutes of a processor to build where the cache has none.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kubernetes.server import API_SERVER, CONTROLLERS, ENSURE, ETCD, SCHEDULER, ControlPlane

IMPOSSIBLE = 3


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of Kubernetes' programs and etcd."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl, which makes the key of Kubernetes' service accounts")
    done = subprocess.run(["sh", str(ENSURE)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def control_plane(programs: Path) -> Iterator[ControlPlane]:
    """etcd and the API server."""
    yield from _running(ControlPlane(programs))


@pytest.fixture(scope="module")
def whole_control_plane(programs: Path) -> Iterator[ControlPlane]:
    """Also controllers, which collect what has no owner any more, and the scheduler."""
    yield from _running(ControlPlane(programs, (ETCD, API_SERVER, CONTROLLERS, SCHEDULER)))


def _running(plane: ControlPlane) -> Iterator[ControlPlane]:
    try:
        plane.start()
        yield plane
    finally:
        plane.close()
