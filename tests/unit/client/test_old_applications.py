"""What clusters of ``firesteel run-application`` leave."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from firesteel.client.cli import applications
from firesteel.core.process import myself
from firesteel.core.run_directory import hold


def test_logs_of_clusters_that_have_ended_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "private_directory", lambda *_: tmp_path)
    monkeypatch.setattr(applications, "_KEPT_LOGS", 2)

    def aged(name: str, age: float, *more: str) -> Path:
        home = tmp_path / name
        (home / "log").mkdir(parents=True)
        for folder in more:
            (home / folder).mkdir(parents=True)
        file = home / "log" / "standalone-job.log"
        file.touch()
        at = file.stat().st_mtime - age
        for path in home.rglob("*"):
            os.utime(path, (at, at))
        return home

    def with_record(home: Path, start: int) -> None:
        record = home / "cluster" / "driver.json"
        record.write_text(json.dumps({"process": {"pid": os.getpid(), "start": start}}))
        for path in (record, record.parent):
            os.utime(path, (0, 0))

    newest, second, third = (aged(f"application-{age}", age) for age in (10, 20, 30))
    old = aged("application-old", applications._LOG_SECONDS + 60)
    long_ago = applications._LOG_SECONDS + 60
    runs = aged("application-runs", long_ago, "conf", "cluster")
    left, killed = (aged(f"application-{name}", long_ago, "conf", "cluster") for name in ("left", "killed"))
    lately = aged("application-lately", 60, "conf", "cluster")
    with_record(left, myself().start)
    with_record(killed, 1)
    lock = hold(runs)
    other = aged("cluster-x", applications._LOG_SECONDS + 60)
    applications._remove_old()
    os.close(lock)
    assert newest.exists()
    assert second.exists()
    assert not third.exists()
    assert not old.exists()
    assert runs.exists(), "its supervisor lives"
    assert left.exists(), "its driver lives"
    assert not killed.exists()
    assert lately.exists(), "the next start may take it over"
    assert other.exists()
