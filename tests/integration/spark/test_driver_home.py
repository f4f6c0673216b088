"""The cluster's directory: who may have it, which driver is taken over, and what is cleaned up."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.process import ProcessId
from firesteel.core.run_directory import RunDirectory
from firesteel.core.secret import spark_secret
from firesteel.protocol.messages import ExecutorSpec
from firesteel.spark.archive import archive_for
from firesteel.spark.driver_home import DriverHome
from firesteel.spark.driver_record import FILE, DriverRecord
from firesteel.spark.executor import ExecutorProcess
from firesteel.spark.hosted_driver import ATTACHED
from firesteel.spark.java import find_java
from firesteel.spark.record_lock import RecordLock
from tests.integration.spark.helpers import until
from tests.integration.spark.hosted_cluster import SECRET

MADE_FOR = {"spark": "4.3"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


@pytest.fixture
def home(directory: Path) -> Iterator[DriverHome]:
    driver_home = DriverHome(directory, MADE_FOR)
    driver_home.claim()
    yield driver_home
    driver_home.release()


@pytest.fixture
def jvm() -> Iterator[ProcessId]:
    """A process that passes for a driver."""
    popen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    identity = process.identify(popen.pid)
    assert identity is not None
    yield identity
    popen.kill()
    popen.wait()


@pytest.fixture
def record(home: DriverHome, jvm: ProcessId) -> DriverRecord:
    """Of a driver that can be taken over."""
    own = home.directory / "driver-1"
    own.mkdir()
    return DriverRecord(jvm, str(own), MADE_FOR, 4711, "g", "s", "spark://x", "app", 7)


def test_a_record_survives_its_way_and_shows_no_secret(home: DriverHome, record: DriverRecord) -> None:
    record = replace(record, gateway_secret="hunter2", spark_salt="salt")
    record.write(home.directory)
    assert DriverRecord.read(home.directory) == record
    assert stat.S_IMODE((home.directory / FILE).stat().st_mode) == 0o600
    assert "hunter" not in repr(record)
    assert "hunter" not in repr(record.gateway)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1', '{"unknown": 1}'])
def test_a_damaged_record_counts_as_none(home: DriverHome, text: str) -> None:
    (home.directory / FILE).write_text(text)
    assert home.find() is None


def test_a_driver_that_fits_is_taken_over(home: DriverHome, record: DriverRecord, jvm: ProcessId) -> None:
    record.write(home.directory)
    attachment = home.find()
    assert attachment is not None
    assert attachment.jvm.identity == jvm
    assert attachment.jvm.is_running()
    assert not RecordLock(Path(record.directory) / ATTACHED).acquire(patience=0.0)
    assert [home.new_executor(attachment) for _ in range(2)] == ["7", "8"]
    read = DriverRecord.read(home.directory)
    assert read is not None
    assert read.next_executor == 9
    attachment.lock.release()


@pytest.mark.parametrize("what", ["unfinished", "made for another Spark", "ending"])
def test_a_driver_that_does_not_fit_is_ended(
    home: DriverHome, record: DriverRecord, jvm: ProcessId, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    lock = RecordLock(Path(record.directory) / ATTACHED)
    if what == "unfinished":
        record = replace(record, gateway_port=0)
    elif what == "ending":
        assert lock.acquire()
    else:
        record = replace(record, made_for={"spark": "4.2", "secret": "hunter3"})
    record.write(home.directory)
    assert home.find() is None
    if what == "made for another Spark":
        assert "it was made with another spark (4.2, not 4.3), secret; its slots go on" in caplog.text
    assert "hunter3" not in caplog.text
    assert not process.is_running(jvm)
    lock.release()


def test_another_process_with_the_drivers_pid_is_left_alone(
    home: DriverHome, record: DriverRecord, jvm: ProcessId
) -> None:
    replace(record, process=replace(jvm, start=jvm.start + 1), gateway_port=0).write(home.directory)
    assert home.find() is None
    assert process.is_running(jvm)


def test_a_directory_has_one_holder_and_a_dead_one_does_not_count(directory: Path) -> None:
    claim = (
        f"from firesteel.spark.driver_home import *; DriverHome(Path({str(directory)!r}), {{}}).claim(); "
        "print('claimed', flush=True); import time; time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", claim], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "claimed\n"
        second = DriverHome(directory, {})
        with pytest.raises(FleetError, match=rf"runs already \(process {first.pid}\).*firesteel.cluster.directory"):
            second.claim()
        first.kill()
    second.claim()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    with pytest.raises(FleetError, match=rf"process {os.getpid()}"):
        DriverHome(directory, {}).claim()
    second.release()
    third = DriverHome(directory, {})
    third.claim()
    third.release()


def test_a_directory_of_somebody_else_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(FleetError, match="belongs to user"):
        DriverHome(directory, {}).claim()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FleetError, match="can't be used: Not a directory"):
        DriverHome(tmp_path / "file" / "cluster", {}).claim()


class TestExecutorThatDoesNotStart:
    @pytest.fixture
    def run(self) -> Iterator[RunDirectory]:
        run = RunDirectory.create()
        yield run
        run.remove()

    @pytest.fixture
    def java(self, tmp_path: Path) -> str:
        """A Java that ends at once."""
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        (home / "lib").mkdir()
        (home / "lib" / "modules").touch()
        (home / "release").write_text('JAVA_VERSION="25.0.1"\n')
        (home / "bin" / "java").write_text("#!/bin/sh\necho broken machine\nexit 9\n")
        (home / "bin" / "java").chmod(0o755)
        return str(home)

    def spec(self, executor: str = "1") -> ExecutorSpec:
        return ExecutorSpec(executor, "spark://CoarseGrainedScheduler@127.0.0.1:1", "app", "salt", 1)

    def test_the_home_keeps_no_secret_and_no_archive_that_its_driver_may_have_failed_with(
        self, run: RunDirectory, java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        archive = archive_for(find_java(java), "executor")
        assert archive is not None
        archive.path.parent.mkdir(mode=0o700)
        archive.path.write_bytes(b"rubbish")
        archive.path.chmod(0o600)
        executor = ExecutorProcess(self.spec(), secret=SECRET, run_directory=run, java_home=java)
        until(lambda: not executor.is_running(), "its end")
        assert executor.exit_reason() == "exit code 9"
        assert "broken machine" in executor.log_tail()
        assert not archive.path.exists()
        secret = spark_secret(SECRET, self.spec().spark_salt).encode()
        assert not [path for path in run.path.rglob("*") if path.is_file() and secret in path.read_bytes()]
        executor.stop()
        executor.stop()
        assert sorted(path.name for path in run.path.iterdir()) == ["bin", "executor-1.log"]

    def test_bad_arguments_are_refused_with_the_reason(self, run: RunDirectory, java: str) -> None:
        with pytest.raises(FleetError, match="at least 128 MiB, not 100"):
            ExecutorProcess(self.spec(), secret=SECRET, run_directory=run, java_home=java, memory_mb=100)
        with pytest.raises(FleetError, match="decimal executor ids, not 'tm-1'"):
            ExecutorProcess(self.spec("tm-1"), secret=SECRET, run_directory=run, java_home=java)
        assert list(run.path.iterdir()) == []
