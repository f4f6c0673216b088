"""The file by which a Dispatcher speaks to whoever supervises it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from firesteel.config import Settings
from firesteel.service.cluster_status import ClusterStatus, StatusFile

KEEPS = Settings({"execution.shutdown-on-application-finish": "false"})


def test_a_session_says_where_it_is_and_that_it_is_shut_down(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    assert file.definition == f"firesteel.application.status-file={file.path}"
    assert (file.read(), file.read().ends(Settings({}))) == (ClusterStatus(), False)
    file.write("http://host:8081")
    assert file.read() == ClusterStatus("http://host:8081")
    file.write_over()
    assert file.read() == ClusterStatus("http://host:8081", is_over=True)
    assert file.read().ends(KEEPS)


def test_a_cluster_ends_with_its_application_unless_it_is_to_stay(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    record: dict[str, Any] = {"id": "a", "name": "orders", "state": "RUNNING", "exit-code": None, "exceptions": []}
    file.write("http://host:8081", record)
    running = file.read()
    assert (running.id, running.name, running.state) == ("a", "orders", "RUNNING")
    assert not running.ends(Settings({}))
    exceptions = [{"exceptionName": "ValueError", "stacktrace": "line 1\nline 2"}]
    file.write("http://host:8081", {**record, "state": "FAILED", "exit-code": 0, "exceptions": exceptions})
    failed = file.read()
    assert (failed.exit_code, failed.exceptions[0].name, failed.exceptions[0].stacktrace) == (
        0, "ValueError", "line 1\nline 2",
    )  # fmt: skip
    file.write_over()
    assert file.read() == msgspec.structs.replace(failed, is_over=True)
    assert (failed.ends(Settings({})), failed.ends(KEEPS)) == (True, False)


@pytest.mark.parametrize("content", ["", "{", "[1]", "7"])
def test_a_damaged_file_says_nothing_and_may_be_written_again(content: str, tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    file.path.write_text(content)
    assert file.read() == ClusterStatus()
    file.write_over()
    assert file.read() == ClusterStatus(is_over=True)
