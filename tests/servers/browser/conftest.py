"""A browser, and a cluster with a job to look at. Where no Chromium can be had, these tests are skipped."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.client import embedded
from firesteel.common import JobClient
from tests.integration.embedded.programs import ended, rest_of, until
from tests.servers.browser.chromium import ENSURE, Chromium
from tests.servers.browser.shop import shop

IMPOSSIBLE = 3


def ensured(script: Path) -> str:
    """What a script prints that installs something, where that can be had."""
    done = subprocess.run(["sh", str(script)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode == IMPOSSIBLE:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def program() -> str:
    """Of the browser."""
    return ensured(ENSURE)


@pytest.fixture(scope="session")
def axe() -> Path:
    """The program that checks pages for accessibility."""
    return Path(ensured(ENSURE.with_name("ensure-axe.sh")))


@dataclass
class Shop:
    """The job, and where it runs.

    Attributes:
        url: of the cluster's REST API and dashboard.
        token: that opens all of it.
        job: has failed once and runs again.
        folder: for what it writes.
    """

    url: str
    token: str
    job: JobClient
    folder: Path

    @property
    def id(self) -> str:
        return str(self.job.get_job_id())

    def ask(self, path: str = "") -> Any:
        """What the server says of the job."""
        return rest_of(self.job, path)


@pytest.fixture(scope="module")
def watched(program: str) -> Iterator[Shop]:
    """A job that runs, after a failure and with checkpoints."""
    with tempfile.TemporaryDirectory(prefix="firesteel-shop-") as name:
        folder = Path(name)
        try:
            job: Any = shop(folder)
            cluster = embedded._shared._cluster
            assert cluster is not None
            watched_shop = Shop(job.get_web_interface_url(), cluster.rest_token, job, folder)
            until(lambda: watched_shop.ask("/exceptions")["exceptionHistory"]["entries"], "the failure", 90)
            until(
                lambda: all(v["tasks"]["RUNNING"] == v["parallelism"] for v in watched_shop.ask()["vertices"]),
                "it runs",
                60,
            )
            until(lambda: watched_shop.ask("/checkpoints")["counts"]["completed"], "a checkpoint", 60)
            yield watched_shop
            if watched_shop.ask()["end-time"] < 0:
                job.cancel().result()
                ended(job)
        finally:
            embedded.stop_embedded_cluster()


@pytest.fixture(scope="module")
def browser(program: str, watched: Shop) -> Iterator[Chromium]:
    """A browser with the dashboard of that cluster."""
    browser_ = Chromium(program)
    try:
        browser_.open(watched.url)
        browser_.text("main h1")
        yield browser_
    finally:
        browser_.close()
