"""Machines that are not as they should be, with whole processes: what happens is said, and whoever is well goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.processes.cluster import Cluster, ServiceProcess, wait_until
from tests.integration.spark.test_java import make_home

pytestmark = pytest.mark.timeout(300)
HEAD = """
from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
"""
COUNTS = HEAD + "print(sorted(env.from_sequence(1, 4).map(lambda i: i * i).execute_and_collect()))\n"
GREEDY = (
    HEAD
    + """
kept = []

def keep(i):
    kept.append(bytearray(4 << 20))
    return i

env.from_sequence(1, 1 << 20).map(keep).name("greedy").print()
env.execute("greedy")
"""
)
OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"
OTHER_PYTHON = """
import platform
import sys

platform.python_version = lambda: "3.99.1"
platform.python_version_tuple = lambda: ("3", "99", "1")
from firesteel_taskmanager.__main__ import main

sys.exit(main())
"""
QUICK = ("taskmanager.registration.timeout=2 s", "cluster.registration.refused-registration-delay=200 ms")


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A directory on a file system of 16 MB, where root may mount one; else an ordinary directory."""
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0700", "firesteel-test", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Nothing more can be written into a small disk."""
    if not folder.is_mount():
        pytest.skip("only root can mount a small disk")
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        yield
    finally:
        ballast.unlink()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster that is well: one TaskManager with two slots. Its directory is on a disk of its own."""
    cluster = Cluster()
    with ExitStack() as end:
        end.callback(cluster.close)
        end.enter_context(small_disk(cluster.cluster_directory))
        end.callback(cluster.stop)
        cluster.start_all()
        yield cluster


@pytest.fixture
def well(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster; its two slots are free afterwards."""
    yield cluster
    wait_until(lambda: cluster.rest("GET", "/overview")[1]["slots-available"] == 2, "the healthy slots are free")


def run(cluster: Cluster, program: str, *options: str) -> tuple[int, str]:
    """Exit code and output of ``firesteel run``, its errors too if it failed."""
    file = cluster.folder / "program.py"
    file.write_text(program)
    done = cluster.firesteel("run", *options, str(file))
    return done.returncode, (done.stdout.splitlines() or [""])[-1] if not done.returncode else done.stdout + done.stderr


@contextmanager
def another_taskmanager(cluster: Cluster, *definitions: str) -> Iterator[ServiceProcess]:
    """One more, which is ended at the end of the block; the ResourceManager knows then that it is gone."""
    started = cluster.launch("taskmanager", *definitions)
    try:
        yield started
    except BaseException:
        print(started.log(), cluster.the("resourcemanager").log())
        raise
    finally:
        started.kill()
        wait_until(lambda: cluster.rest("GET", "/overview")[1]["taskmanagers"] == 1, "it is not counted any more")


def test_a_taskmanager_with_another_secret_is_refused_and_ends(well: Cluster) -> None:
    secret = well.folder / "another-secret"
    secret.touch(mode=0o600)
    secret.write_text("another secret that is long enough")
    with another_taskmanager(well, f"firesteel.security.secret-file={secret}", *QUICK) as stranger:
        assert stranger.wait() == 1
        assert "secret" in stranger.log().splitlines()[-1], stranger.log()
        assert "taskmanager.registration.timeout" in stranger.log()
        assert "Traceback" not in stranger.log()
    assert " refused " in well.the("resourcemanager").log()


def test_a_taskmanager_with_another_python_is_refused_by_name(well: Cluster) -> None:
    script = well.folder / "other_python.py"
    script.write_text(OTHER_PYTHON)
    words = [sys.executable, str(script), "--config-dir", str(well.config_dir)]
    definitions = [word for definition in QUICK for word in ("-D", definition)]
    done = subprocess.run(
        [*words, *definitions], env=well.environment(), capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    message = f"python 3.99 instead of {sys.version_info.major}.{sys.version_info.minor}"
    assert message in done.stderr.splitlines()[-1], done.stderr
    assert message in well.the("resourcemanager").log()


def test_a_taskmanager_whose_java_is_too_old_says_so_and_gets_no_work(well: Cluster) -> None:
    home = make_home(well.folder / "java", "11.0.2")
    with another_taskmanager(well, f"firesteel.java.home={home}") as old:
        wait_until(lambda: "is Java 11" in old.log(), "it says why no executor can be started")
        wait_until(lambda: "is Java 11" in well.the("resourcemanager").log(), "the ResourceManager knows why")
        assert run(well, COUNTS, "-p", "2") == (0, "[1, 4, 9, 16]")


def test_a_slot_that_takes_too_much_memory_fails_its_job_by_name(well: Cluster) -> None:
    code, said = run(well, GREEDY)
    assert code == 1
    assert "'Source: Sequence Source -> greedy -> " in said, said
    assert "and its share is 512 MiB" in said, said
    assert "taskmanager.memory.process.size" in said, said
    jobs = well.rest("GET", "/jobs/overview")[1]["jobs"]
    (job,) = [row["jid"] for row in jobs if row["name"] == "greedy"]
    assert "TaskMemoryExceededError" in json.dumps(well.rest("GET", f"/jobs/{job}/exceptions")[1])


@pytest.mark.may_skip(reason="only root can mount a small disk")
def test_a_full_disk_of_a_taskmanager_is_named_and_room_cures_it(well: Cluster) -> None:
    disk = well.folder / "d"
    with ExitStack() as room:
        room.enter_context(small_disk(disk))
        full = room.enter_context(ExitStack())
        full.enter_context(filled(disk))
        late = room.enter_context(another_taskmanager(well, f"firesteel.run.directory={disk}"))
        wait_until(lambda: "the disk is full" in late.log(), "it says why no executor can be started")
        assert "firesteel.run.directory" in late.log()
        wait_until(lambda: "the disk is full" in well.the("resourcemanager").log(), "the ResourceManager knows why")
        full.close()
        wait_until(lambda: len(well.executors()) == 2, "there is room for an executor")
        assert run(well, COUNTS, "-p", "4") == (0, "[1, 4, 9, 16]")


@pytest.mark.may_skip(reason="only root can mount a small disk")
def test_a_full_disk_of_the_dispatcher_refuses_jobs_and_room_cures_it(well: Cluster) -> None:
    with filled(well.cluster_directory):
        code, said = run(well, COUNTS)
        assert code == 1
        assert "the disk is full" in said, said
    assert run(well, COUNTS) == (0, "[1, 4, 9, 16]")
