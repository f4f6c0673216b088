"""The end of an embedded cluster whose services do not end."""

from __future__ import annotations

import asyncio
import errno
import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.client import embedded_cluster
from firesteel.config.settings import Settings
from firesteel.core.errors import FleetError
from firesteel.service.leaving import Leaving


class Service:
    """Starts; its stop may hang."""

    address = "http://127.0.0.1:1"
    rest = SimpleNamespace(address="http://127.0.0.1:1")
    stopped: list[str]
    hangs = ""
    failure: OSError | None = None

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name

    async def start(self, host: str, port: int) -> None:
        if self.name == "dispatcher" and self.failure is not None:
            raise self.failure

    async def stop(self, leaving: Leaving) -> None:
        assert leaving is Leaving.END_ALL
        if self.name == self.hangs:
            await asyncio.Event().wait()
        self.stopped.append(self.name)


class Fleet:
    """Counts how often it is stopped."""

    stops = 0

    def __init__(self, **_: Any) -> None:
        pass

    def stop(self) -> None:
        Fleet.stops += 1


@pytest.mark.parametrize("hangs", ["", "taskmanager", "dispatcher"])
def test_the_fleet_ends_whatever_service_hangs(
    hangs: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Service, "stopped", [], raising=False)
    monkeypatch.setattr(Service, "hangs", hangs)
    monkeypatch.setattr(Fleet, "stops", 0)
    if hangs:
        monkeypatch.setattr(embedded_cluster, "_STOP_SECONDS", 0.05)
    monkeypatch.setattr(embedded_cluster, "EmbeddedFleet", Fleet)
    monkeypatch.setattr(
        "firesteel.core.plugins.load", lambda group, name: lambda **arguments: Service(name, **arguments)
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as runs, caplog.at_level(logging.WARNING):
        cluster = embedded_cluster.EmbeddedCluster(Settings({"firesteel.run.directory": runs}), 1)
        cluster.stop()
        assert [path.name for path in Path(runs).iterdir()] == [".lock"]
    assert Fleet.stops == 1
    assert ("did not stop within" in caplog.text) == bool(hangs)
    assert hangs not in Service.stopped
    if not hangs:
        assert Service.stopped == ["dispatcher", "jobmaster", "taskmanager", "resourcemanager"]


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (
            OSError(errno.EADDRINUSE, "the REST API does not start: port 8081 is taken"),
            "the REST API does not start: port",
        ),
        (TimeoutError(), "it took more than 60 s"),
    ],
)
def test_a_cluster_that_can_not_start_says_why_in_one_sentence_and_leaves_nothing(
    failure: OSError, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Service, "stopped", [], raising=False)
    monkeypatch.setattr(Service, "failure", failure)
    monkeypatch.setattr(Fleet, "stops", 0)
    monkeypatch.setattr(embedded_cluster, "EmbeddedFleet", Fleet)
    monkeypatch.setattr(
        "firesteel.core.plugins.load", lambda group, name: lambda **arguments: Service(name, **arguments)
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as runs:
        with pytest.raises(FleetError, match=f"the cluster inside this process did not start: {reason}"):
            embedded_cluster.EmbeddedCluster(Settings({"firesteel.run.directory": runs}), 1)
        assert [path.name for path in Path(runs).iterdir()] == [".lock"]
    assert Fleet.stops == 1
