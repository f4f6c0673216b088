"""How an ApplicationMaster ends; the JVM that speaks to YARN is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import FleetError
from firesteel.service.supervisor import OVER, REFUSED, STOPPED
from firesteel.spark.driver import GatewayAddress
from firesteel_yarn import application_master
from firesteel_yarn.application_master import ApplicationMaster
from firesteel_yarn.launch import LAUNCH_FILE, Launch


class Master:
    """``Master.java``."""

    def __init__(self) -> None:
        self.registered = False
        self.ends: list[tuple[str, str]] = []

    def register(self, host: str, port: int, url: str) -> None:
        self.registered = True

    def workers(self) -> str:
        return ""

    def unregister(self, status: str, diagnostics: str, url: str) -> None:
        assert self.registered, "YARN takes no word of an attempt that it does not know"
        self.ends.append((status, diagnostics))


class Jvm:
    """The process, and py4j's view of it."""

    def __init__(self, master: Master, ends: bool = False) -> None:
        self.master, self._ends, self.jvm = master, ends, self
        self.firesteel = self.yarn = self.Master = self

    def wait_ready(self) -> GatewayAddress:
        if self._ends:
            raise FleetError("Java has ended")
        return GatewayAddress(1, "s")

    def begin(self, calm: int, hurry: int) -> Master:
        return self.master


def attempt(folder: Path, number: int, monkeypatch: pytest.MonkeyPatch, ends: bool = False) -> tuple[Any, Master]:
    """One of two attempts, whose JVM is just starting."""
    (folder / LAUNCH_FILE).write_text(Launch("python3", attempts=2).to_json())
    (folder / "config.yaml").write_text("{}")
    (folder / "dispatcher.out").write_text("the quorum is missing")
    application: Any = ApplicationMaster(folder, folder, "n", f"container_17_0001_{number:02}_000001")
    master = Master()
    jvm = Jvm(master, ends)
    application._jvm = jvm
    monkeypatch.setattr(application_master, "attach", lambda address: jvm)
    return application, master


def test_a_service_that_refuses_is_faster_than_the_jvm_and_yarn_hears_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application, master = attempt(tmp_path, 1, monkeypatch)
    assert application._ended(f"the dispatcher {REFUSED}") == 1
    ((status, diagnostics),) = master.ends
    assert status == "FAILED", "another attempt would refuse it as well"
    assert "attempt 1 on n gives up: the dispatcher refuses its configuration" in diagnostics
    assert "the quorum is missing" in diagnostics


def test_only_the_last_attempt_tells_what_it_has_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, statuses in ((1, []), (2, ["FAILED"])):
        application, master = attempt(tmp_path, number, monkeypatch)
        assert application._ended("the jobmaster does not stay") == 1
        assert [status for status, _ in master.ends] == statuses


def test_how_the_program_has_ended_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    application, master = attempt(tmp_path, 1, monkeypatch)
    (tmp_path / "cluster" / "status.json").write_text('{"state": "CANCELED", "exit-code": 0}')
    assert application._ended(OVER) == 0
    assert master.ends == [("KILLED", "")]


def test_an_attempt_that_yarn_stops_says_nothing_and_without_a_jvm_nothing_can_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application, master = attempt(tmp_path, 2, monkeypatch)
    assert application._ended(STOPPED) == 143
    assert master.ends == []
    application, master = attempt(tmp_path, 2, monkeypatch, ends=True)
    assert application._ended("the JVM has ended") == 1
    assert master.ends == []
