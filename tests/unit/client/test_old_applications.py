"""What clusters of ``firesteel run-application`` leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firesteel.client.cli import applications


def test_logs_of_clusters_that_have_ended_are_kept_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "private_directory", lambda *_: tmp_path)
    monkeypatch.setattr(applications, "_KEPT_LOGS", 2)

    def made(name: str, age: float, *more: str) -> Path:
        home = tmp_path / name
        (home / "log").mkdir(parents=True)
        for folder in more:
            (home / folder).mkdir()
        file = home / "log" / "standalone-job.log"
        file.touch()
        at = file.stat().st_mtime - age
        for path in (file, home / "log"):
            os.utime(path, (at, at))
        return home

    newest, second, third = (made(f"application-{age}", age) for age in (10, 20, 30))
    old = made("application-old", applications._LOG_SECONDS + 60)
    runs = made("application-runs", applications._LOG_SECONDS + 60, "conf", "cluster")
    other = made("cluster-x", applications._LOG_SECONDS + 60)
    applications._remove_old()
    assert newest.exists()
    assert second.exists()
    assert not third.exists()
    assert not old.exists()
    assert runs.exists()
    assert other.exists()
