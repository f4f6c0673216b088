"""The checks of ``firesteel doctor --self-test``; the jobs that it runs are those of other tests."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest

from firesteel.client.cli import self_test
from firesteel.client.cli.doctor_findings import Finding, Level

GIB = 1 << 30


def test_names_without_addresses_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known: set[str] = set()

    def look_up(name: str, _: int) -> list[object]:
        if name in known:
            return []
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "no_such_host")
    assert self_test.check_names(tmp_path).level is Level.ERROR
    known.add("localhost")
    finding = self_test.check_names(tmp_path)
    assert (finding.level, "no_such_host" in finding.text) == (Level.WARNING, True)
    assert "/etc/hosts" in finding.remedy
    known.add("no_such_host")
    assert self_test.check_names(tmp_path).level is Level.OK


@pytest.mark.parametrize(
    ("hard", "level"),
    [(256, Level.ERROR), (512, Level.WARNING), (4096, Level.OK), (-1, Level.OK)],  # -1: no limit
)
def test_a_low_limit_of_open_files_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hard: int, level: Level
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (hard, hard))
    assert self_test.check_limits(tmp_path).level is level


@pytest.mark.parametrize(("free", "level"), [(GIB // 10, Level.ERROR), (GIB, Level.WARNING), (3 * GIB, Level.OK)])
def test_little_space_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, level: Level) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(9 * GIB, 0, free))
    assert self_test.check_disk(tmp_path).level is level


def test_a_run_directory_without_letters_or_locks_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert self_test.check_encoding(tmp_path).level is Level.OK
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "iso8859-1")
    assert self_test.check_encoding(tmp_path).level is Level.WARNING
    monkeypatch.setattr("fcntl.flock", _no_locks)
    finding = self_test.check_files(tmp_path)
    assert (finding.level, "No locks available" in finding.text) == (Level.ERROR, True)


def _no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_host_without_loopback_is_told_and_what_was_seen_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    finding = self_test._cluster(tmp_path)
    assert (finding.area, finding.level) == ("cluster", Level.ERROR)
    assert finding.text == "no port of 127.0.0.1 can be had: Cannot assign requested address"


def test_a_job_that_fails_is_shown_with_what_it_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_as(code: int, out: str, err: str = "") -> Finding:
        ended = subprocess.CompletedProcess[str]([], code, out, err)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
        return self_test._job("embedded", [], {})

    finding = run_as(3, "first\n", "the JVM did not start\n")
    assert finding.level is Level.ERROR
    assert finding.text.splitlines()[0] == "the job failed with exit code 3:"
    assert finding.text.endswith("the JVM did not start")
    assert run_as(0, "the sum is 4950\n").level is Level.OK
    assert run_as(0, "the sum is 4949\n").level is Level.ERROR
