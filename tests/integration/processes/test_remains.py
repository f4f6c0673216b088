"""What services left that were stopped or killed is found by the records that they write, and ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.core.ids import new_job_id
from firesteel.core.process import ProcessId, identify, is_running
from firesteel.core.run_directory import private_directory
from firesteel.protocol import messages as m
from firesteel.service.remains import end_remains
from firesteel.spark.driver_record import DriverRecord
from firesteel_jobmaster.registry import ProcessRegistry, RegisteredProcess


@pytest.fixture
def left_alone() -> Iterator[ProcessId]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as child:
        process = identify(child.pid)
        assert process is not None
        yield process
        child.kill()


def record_of_a_jobmaster(directory: Path, process: ProcessId) -> None:
    job_id = str(new_job_id())
    start = m.StartJob({}, "http://d:1", "token", "http://r:1", "http://d:1")
    ProcessRegistry(directory).write(RegisteredProcess(job_id, process, f"http://j:1/jobs/{job_id}", "token", start))


def record_of_a_driver(directory: Path, process: ProcessId) -> None:
    DriverRecord(process, str(directory / "driver-1"), {}).write(directory)


def record_of_a_worker(directory: Path, process: ProcessId) -> None:
    workers = private_directory(directory / "workers")
    (workers / "conf").mkdir()
    (workers / "conf" / "cluster-secret").touch()
    (workers / "worker-1.pid").write_text(f"{process.pid}\n{process.start}\nhttp://w:1\n")


def test_a_taskmanager_that_the_resourcemanager_has_started_is_ended(tmp_path: Path, left_alone: ProcessId) -> None:
    record_of_a_worker(tmp_path, left_alone)
    said = end_remains(tmp_path)
    assert said == [f"Ended the TaskManager of the ResourceManager (process {left_alone.pid}), which was left alone."]
    assert not is_running(left_alone)
    assert list((tmp_path / "workers").iterdir()) == []


@pytest.mark.parametrize(
    ("write", "what"), [(record_of_a_jobmaster, "JobMaster"), (record_of_a_driver, "driver of Spark")]
)
def test_a_process_that_a_record_names_is_ended(
    write: object, what: str, tmp_path: Path, left_alone: ProcessId
) -> None:
    assert callable(write)
    write(tmp_path, left_alone)
    said = end_remains(tmp_path)
    assert said == [f"Ended the {what} (process {left_alone.pid}), which was left alone."]
    assert not is_running(left_alone)
    assert not list(tmp_path.rglob("*.json"))
    assert end_remains(tmp_path) == []


@pytest.mark.parametrize("write", [record_of_a_jobmaster, record_of_a_worker, record_of_a_driver])
def test_a_later_process_with_the_same_pid_is_left_alone(write: object, tmp_path: Path, left_alone: ProcessId) -> None:
    assert callable(write)
    write(tmp_path, ProcessId(left_alone.pid, left_alone.start - 1))
    assert end_remains(tmp_path) == []
    assert is_running(left_alone)
