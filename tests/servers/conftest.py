"""A Docker engine, the image, one cluster of containers, a Kerberos realm and PostgreSQL that the tests share."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.compose_cluster import (
    ENSURE_ENGINE,
    NO_INDEX,
    ComposeCluster,
    build_image,
    command,
    ensure_engine,
    foreign_settings,
    own_project,
    remove_leftovers,
)
from tests.servers.kerberos.realm import Realm, ensure_kerberos
from tests.servers.postgresql.server import ENSURE as ENSURE_POSTGRESQL
from tests.servers.postgresql.server import PostgresServer

MINIO = Path(__file__).parent / "minio"
IMPOSSIBLE = 3
"""Its exit code where there is no engine and none can be got."""
SLOTS = 2
"""Of each TaskManager."""
HEARTBEAT_TIMEOUT = 16.0
OPTIONS = {
    "heartbeat.interval": "1 s",
    "heartbeat.timeout": f"{HEARTBEAT_TIMEOUT:g} s",
    "taskmanager.numberOfTaskSlots": str(SLOTS),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of MinIO come last, and have time: its server may have to be built, beside the others."""
    items.sort(key=lambda item: MINIO in item.path.parents)
    for item in items:
        if MINIO in item.path.parents:
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def engine() -> Iterator[None]:
    """A Docker engine with Compose v2 and the base image. Where it can be had, it must be."""
    with pytest.MonkeyPatch.context() as patch:
        for name in foreign_settings():
            patch.delenv(name)
        done = ensure_engine()
        if done.returncode == IMPOSSIBLE:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        if done.returncode:
            pytest.fail(f"{ENSURE_ENGINE.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        remove_leftovers()
        yield


@pytest.fixture(scope="session")
def image(engine: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """The image, built from this checkout."""
    began = time.monotonic()
    try:
        name = build_image(own_project())
    except AssertionError as error:
        reason = NO_INDEX.search(str(error))
        if reason is None:
            raise
        pytest.skip(f"builds of images reach no package index here ({reason[0]})")
    size = int(command("docker", "image", "inspect", "--format", "{{.Size}}", name).stdout)
    tell(request, f"the image has {size / 1e6:,.0f} MB; built in {time.monotonic() - began:.1f} s")
    yield name
    command("docker", "image", "rm", "--force", name)


@pytest.fixture(scope="module")
def shared(image: str, request: pytest.FixtureRequest) -> Iterator[ComposeCluster]:
    """A cluster with one TaskManager for the tests of a file; each leaves it as it was."""
    cluster = ComposeCluster(image, OPTIONS)
    try:
        began = time.monotonic()
        cluster.up()
        tell(request, f"docker compose up --detach --wait took {time.monotonic() - began:.1f} s")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(shared: ComposeCluster) -> Iterator[ComposeCluster]:
    """The shared cluster, all of its slots free; what it logged is shown where a test fails."""
    began = time.time()
    try:
        shared.calm(SLOTS)
        yield shared
        shared.calm(SLOTS)
    finally:
        print(shared.logs(since=began))


@pytest.fixture(scope="session")
def realm() -> Iterator[Realm]:
    """A Kerberos realm that gives tickets; who stops it starts it again."""
    ensure_kerberos()
    realm = Realm()
    try:
        realm.start()
        yield realm
    finally:
        realm.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server. Where one can be had, it must be; elsewhere its tests are skipped."""
    done = subprocess.run(["sh", str(ENSURE_POSTGRESQL)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    server = PostgresServer(done.stdout.strip())
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def root() -> None:
    """Faults are made by the host's root."""
    if os.geteuid() != 0:
        pytest.skip("only root can kill processes of a container and drop its packets")


def tell(request: pytest.FixtureRequest, figure: str) -> None:
    """Show a figure among pytest's own output."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{figure}", flush=True)
