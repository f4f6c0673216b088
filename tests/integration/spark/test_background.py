"""Archives made in the background: when a process is started for them, and that it ends."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.errors import FleetError
from firesteel.core.run_directory import RunDirectory
from firesteel.spark import background
from firesteel.spark.archive import Archive, archives_of, start_from_archive
from firesteel.spark.embedded import EmbeddedFleet
from firesteel.spark.java import Java, find_java
from firesteel.spark.owned_process import end_together
from firesteel.spark.slot_task import probe
from tests.integration.spark.helpers import until
from tests.integration.spark.hosted_cluster import PATIENCE, TaskManagers, new_fleet, wait_attached

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="archives are made in the background on Linux"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "firesteel"


@pytest.fixture
def java() -> Java:
    return find_java()


@pytest.fixture
def archive(java: Java) -> Archive:
    """That of the embedded fleet, not made."""
    return archives_of(java, "embedded")["embedded"]


def put(archive: Archive) -> None:
    """Make something that passes for an archive."""
    archive.path.parent.mkdir(mode=0o700, exist_ok=True)
    archive.path.write_bytes(b"an archive")
    archive.path.chmod(0o600)


# -- who starts one, and when


def test_a_detached_one_is_nobodys_child_and_holds_nothing_of_ours(
    java: Java, archive: Archive, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTEEL_SECRET", "hunter2")
    answer_file = cache / "told"
    code = "import os, sys; print('some words', sys.stdin.read(), flush=True);"
    code += (
        f"os.kill(os.getpid(), 19); open({str(answer_file)!r}, 'w').write(os.environ.get('FIRESTEEL_SECRET', 'none'))"
    )
    monkeypatch.setattr(background, "_command", lambda java, group: [sys.executable, "-c", code])
    before = {child.pid for child in process.descendants(os.getpid())}
    assert background.start_detached(java, "embedded")
    log = cache / background.LOG
    until(lambda: "some words" in log.read_text(), "its first words")
    assert {child.pid for child in process.descendants(os.getpid())} == before
    (pid,) = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and runs(entry, code)]
    assert os.getsid(pid) != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    files = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    assert files == {"/dev/null", str(log)}
    os.kill(pid, signal.SIGCONT)
    until(answer_file.exists, "its end")
    until(lambda: answer_file.read_text(), "what it has to say")
    assert answer_file.read_text() == "none"


def runs(entry: Path, code: str) -> bool:
    """Whether a process runs this code."""
    try:
        return code.encode() in (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.mark.parametrize("why", ["it is there", "somebody makes it", "it failed lately"])
def test_none_is_started_if(java: Java, archive: Archive, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def refuse(java: Java, group: str) -> list[str]:
        raise AssertionError("a process is started")

    monkeypatch.setattr(background, "_command", refuse)
    with pytest.raises(AssertionError, match="is started"):
        background.start_detached(java, "embedded")
    with archive.lock(wait=False) as ours:
        assert ours
        if why == "it is there":
            put(archive)
        elif why == "it failed lately":
            archive.note_failure()
        else:
            assert background.start_owned(java, "embedded") is None
            assert not background.start_detached(java, "embedded")
            return
    assert background.start_owned(java, "embedded") is None
    assert not background.start_detached(java, "embedded")
    if why == "it failed lately":
        archive.note_success()
        assert not archive.has_failed()


def test_only_one_makes_an_archive(archive: Archive) -> None:
    assert not archive.is_locked()
    with archive.lock(wait=False) as first, archive.lock(wait=False) as second:
        assert (first, second) == (True, False)
        assert archive.is_locked()
        assert archive._beside("lock").read_text() == f"{os.getpid()}\n"
    assert not archive.is_locked()


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(java: Java, cache: Path) -> None:
    cache.write_text("no directory")
    assert not background.start_detached(java, "embedded")
    assert background.start_owned(java, "hosted") is None


# -- what it does


def test_the_background_process_runs_when_nobody_else_wants_to_and_goes_first() -> None:
    code = "import os; from firesteel.spark import archive_maker; archive_maker._be_modest();"
    code += "print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.nice(0), open('/proc/self/oom_score_adj').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "19", "1000"]


@pytest.mark.parametrize("end", ["owner", "SIGTERM"])
def test_a_child_ends_with_its_owner(java: Java, end: str) -> None:
    command = [*background._command(java, "embedded"), "--owned", "--eager", "--delay", "600"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stderr is not None
    status = Path(f"/proc/{child.pid}/status")
    mask = 1 << (signal.SIGTERM - 1)
    until(lambda: int(status.read_text().split("SigCgt:")[1].split()[0], 16) & mask, "its handlers")
    if end == "owner":
        child.stdin.close()
    else:
        child.terminate()
    assert child.wait(PATIENCE) == 1
    assert child.stderr.read() == "ended by SIGTERM\n"
    child.stdin.close()
    child.stderr.close()


def test_an_archive_that_takes_too_long_is_given_up_and_not_tried_again_soon(java: Java, archive: Archive) -> None:
    code = f"""
import time
from firesteel.spark import archive_maker, training
archive_maker.DEADLINE = 0.2
def stuck(*arguments, **more):
    try:
        time.sleep(600)
    finally:
        print("cleaned up")
training.train = stuck
raise SystemExit(archive_maker.main(["embedded", "--eager", "--java-home", {str(java.executable.parent.parent)!r}]))
"""
    archive.path.parent.mkdir(mode=0o700)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["cleaned up", "No class-data archive was made: not done within 0.2 s"]
    assert archive.has_failed()


@pytest.mark.long  # each run of all tiers makes an archive so
@pytest.mark.timeout(600)
def test_after_the_first_run_of_a_program_there_is_an_archive_and_no_process(
    java: Java, archive: Archive, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = background._command
    monkeypatch.setattr(background, "_command", lambda java, group: [*command(java, group), "--eager"])
    run = RunDirectory.create()
    fleet = EmbeddedFleet(slots=1, spare_cores=0, slot_main=probe, run_directory=run, make_archive=True)
    fleet.start()
    assert not archive.is_locked()
    fleet.stop()
    run.remove()
    until(lambda: archive.is_there() or archive.has_failed(), "the archive", 400)
    until(lambda: not archive.is_locked(), "the end of its maker")
    assert archive.is_there(), (cache / background.LOG).read_text()
    left = {path.name for path in cache.iterdir()}
    assert left == {archive.path.name, archive._beside("lock").name, background.LOG}
    assert not background.start_detached(java, "embedded")


def test_services_have_children_that_end_with_them(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "start_owned", functools.partial(background.start_owned, delay=3600.0))
    managers = TaskManagers()
    fleet = new_fleet(managers.run.path / "cluster", make_archive=True)
    try:
        fleet.start()
        executor = managers.host(fleet.executor_for("tm", 1), make_archive=True)
        wait_attached(fleet, executor)
        makers = [fleet._maker, executor._maker]
        assert all(maker is not None and maker.is_running() for maker in makers)
        executor.stop()
    finally:
        fleet.stop()
        managers.close()
    assert not any(maker is not None and maker.is_running() for maker in makers)


def test_a_driver_of_a_maker_that_is_killed_does_not_stay(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    command = background._command
    monkeypatch.setattr(background, "_command", lambda java, group: [*command(java, group), "--eager"])
    maker = background.start_owned(java, "hosted", delay=0.0)
    assert maker is not None
    until(lambda: any("SlotsDriver" in text for text in map(line, process.descendants(maker.pid))), "its driver")
    family = process.descendants(maker.pid)
    maker.popen.kill()
    maker.popen.wait()
    assert process.wait_gone(family, PATIENCE) == []
    maker.release()
    end_together(maker, None, 0.0)
    RunDirectory.create().remove()


def line(jvm: process.ProcessId) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{jvm.pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


# -- starts


def test_a_start_from_an_archive_that_fails_is_repeated_without(java: Java, archive: Archive) -> None:
    tried: list[tuple[str, ...]] = []

    def start(flags: tuple[str, ...]) -> None:
        tried.append(flags)
        if flags:
            raise FleetError("the JVM has ended")

    put(archive)
    flags = archive.flags_to_use()
    with pytest.raises(FleetError):
        start_from_archive(java, "embedded", start, aborted=lambda: True)
    assert archive.is_there()
    start_from_archive(java, "embedded", start, use=False)
    with pytest.raises(FleetError):
        start_from_archive(java, "embedded", start, recording=("-record",))
    assert archive.is_there()
    start_from_archive(java, "embedded", start)
    assert tried == [flags, (), ("-record",), flags, ()]
    assert not archive.is_there()
    assert archive.has_failed(), "it would be made, and fail, again and again"


def test_what_fails_without_the_archive_as_well_leaves_it_alone(java: Java, archive: Archive) -> None:
    tried: list[tuple[str, ...]] = []

    def start(flags: tuple[str, ...]) -> None:
        tried.append(flags)
        raise FleetError("Python workers do not start")

    put(archive)
    flags = archive.flags_to_use()
    with pytest.raises(FleetError, match="workers"):
        start_from_archive(java, "embedded", start)
    assert tried == [flags, ()]
    assert archive.is_there()
    assert not archive.has_failed()
