"""A real Kubernetes whose pods run, with the image of this checkout and an object store. Where it can be had, it must.

All tests here are marked ``long``: Kubernetes takes eight minutes of a processor to build where the cache has none.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.compose_cluster import command
from tests.servers.conftest import tell
from tests.servers.helm.chart import ENSURE as ENSURE_HELM
from tests.servers.kubernetes.server import ENSURE as ENSURE_KUBERNETES
from tests.servers.minio.server import ENSURE as ENSURE_MINIO
from tests.servers.nodes.cluster import HERE, KubernetesCluster, impossible
from tests.servers.nodes.counting import BOUNDED
from tests.servers.nodes.images import image_of_program
from tests.servers.nodes.store import MINIO, Store

IMPOSSIBLE = 3
IMAGE = "registry.example/firesteel"
TAGS = ("0.1.0", "0.1.0-next")
"""An upgrade of the image goes from one to the other. The second one is that of a user, with a program added."""
PROGRAM_OF_IMAGE = "/opt/firesteel/usrlib/bounded.py"
ON_NODES = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.may_skip(
        reason="a machine where no Docker engine can be had, no Kubernetes be built, or no node be made"
    ),
    pytest.mark.leaks_ok(reason="containerd's shims and pods end with their node, after the last test"),
]
"""Of all tests here."""


def ensured(script: Path) -> Path:
    """What a script prints that gets a program; without it the test is skipped."""
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensured(ENSURE_HELM) / "helm"


@pytest.fixture(scope="session")
def bare_cluster(request: pytest.FixtureRequest) -> Iterator[KubernetesCluster]:
    """Two nodes, and nothing on them but a storage class."""
    pause = ensured(HERE / "ensure-node.sh")
    if why := impossible():
        pytest.skip(why)
    cluster = KubernetesCluster(ensured(ENSURE_KUBERNETES), pause)
    try:
        began = time.monotonic()
        cluster.start(2)
        tell(request, f"Kubernetes with two nodes was ready after {time.monotonic() - began:.1f} s")
        cluster.make_volumes()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def cluster(bare_cluster: KubernetesCluster, image: str, request: pytest.FixtureRequest) -> KubernetesCluster:
    began, archive = time.monotonic(), bare_cluster.folder / "image.tar"
    names = [f"{IMAGE}:{tag}" for tag in TAGS]
    try:
        command("docker", "tag", image, names[0])
        own = bare_cluster.folder / "image"
        own.mkdir()
        (own / "bounded.py").write_text(BOUNDED)
        (own / "Dockerfile").write_text(f"FROM {names[0]}\nCOPY bounded.py {PROGRAM_OF_IMAGE}\n")
        command("docker", "build", "--tag", names[1], str(own))
        command("docker", "save", "--output", str(archive), *names, timeout=600)
    finally:
        command("docker", "image", "rm", *names, check=False)
    bare_cluster.load(archive)
    archive.unlink()
    tell(request, f"the image was on both nodes after {time.monotonic() - began:.1f} s")
    return bare_cluster


@pytest.fixture(scope="session")
def store(bare_cluster: KubernetesCluster) -> Store:
    """MinIO in a pod."""
    archive = bare_cluster.folder / "minio.tar"
    image_of_program(archive, MINIO, ensured(ENSURE_MINIO))
    bare_cluster.nodes[0].load(archive)
    archive.unlink()
    store = Store(bare_cluster)
    store.start()
    return store
