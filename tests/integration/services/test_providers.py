"""Providers with real processes: a stand-in program, then TaskManagers."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.config.load import load_settings
from firesteel.config.options import RESOURCEMANAGER_ADDRESS, TASKMANAGER_SLOTS
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.process import ProcessId, descendants, identify, is_running
from firesteel.core.secret import load_secret
from firesteel.protocol.provider import ProviderContext, WorkerError, WorkerSpec
from firesteel.runtime.slot.slot_main import slot_main
from firesteel.service.pid_file import read_pid_file
from firesteel.spark.hosted_provider import HostedProvider
from firesteel.testing import ManualClock, check_provider
from firesteel_resourcemanager.local_process import NAMELESS_GRACE, STOP_GRACE, LocalProcessProvider
from tests.waiting import wait_until

WORKER = os.path.join(os.path.dirname(__file__), "worker_process.py")
SECRET = "a secret of the cluster, for workers"
PATIENCE = 100.0


def context(directory: Path, clock: Clock | None = None, **settings: str) -> ProviderContext:
    provider_settings = Settings({key.replace("_", "."): value for key, value in settings.items()})
    return ProviderContext(provider_settings, SECRET, clock or SystemClock(), directory, slot_main)


until = wait_until


@contextmanager
def provider(directory: Path, behaviour: str = "ok", clock: Clock | None = None) -> Iterator[LocalProcessProvider]:
    local_provider = LocalProcessProvider(context(directory, clock), (sys.executable, "-S", WORKER, behaviour))
    assert local_provider.recover("http://127.0.0.1:8082") == []
    try:
        yield local_provider
    finally:
        local_provider.terminate()


def process_of(directory: Path, name: str) -> ProcessId | None:
    return read_pid_file(directory / "workers" / f"{name}.pid")


def is_ready(directory: Path, name: str) -> bool:
    output = directory / "workers" / f"{name}.out"
    return output.exists() and "ready" in output.read_text()


def runs(directory: Path, name: str) -> bool:
    process = process_of(directory, name)
    return process is not None and is_running(process) and is_ready(directory, name)


def test_the_local_process_provider_keeps_the_contract(tmp_path: Path) -> None:
    def kill(name: str) -> None:
        process = process_of(tmp_path, name)
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    program = (sys.executable, "-S", WORKER, "ok")
    check_provider(lambda: LocalProcessProvider(context(tmp_path), program), lambda name: runs(tmp_path, name), kill)


def test_the_standalone_provider_keeps_the_contract(tmp_path: Path) -> None:
    check_provider(lambda: HostedProvider(context(tmp_path / "cluster")))
    assert not (tmp_path / "cluster").exists(), "to make a provider touches nothing"


def test_a_worker_that_does_not_end_is_killed_with_all_below_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with provider(tmp_path, "deaf", clock) as local_provider:
        local_provider.start_worker(WorkerSpec("deaf", 1))
        until(lambda: is_ready(tmp_path, "deaf"))
        process = process_of(tmp_path, "deaf")
        assert process is not None
        family = descendants(process.pid)
        assert len(family) == 1
        local_provider.stop_worker("deaf")
        assert local_provider.ended_workers() == []
        clock.advance(STOP_GRACE)
        assert local_provider.ended_workers() == [("deaf", "killed by signal 9: ready")]
        assert not any(is_running(p) for p in (process, *family))


def test_what_a_worker_says_at_its_end_is_the_cause(tmp_path: Path) -> None:
    with provider(tmp_path, "refuses") as local_provider:
        local_provider.start_worker(WorkerSpec("refuses", 1))
        ended: list[tuple[str, str]] = []

        def has_ended() -> bool:
            ended.extend(local_provider.ended_workers())
            return bool(ended)

        until(has_ended)
        assert ended == [("refuses", "exit code 2: firesteel-taskmanager: there is no such memory")]


def test_workers_get_the_settings_and_the_secret_and_nobody_else_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRESTEEL_SECRET", SECRET)
    monkeypatch.setenv("FIRESTEEL_OPTION_REST_PORT", "1")
    local_provider = LocalProcessProvider(
        context(tmp_path, heartbeat_interval="7 s", taskmanager_rpc_port="6122", firesteel_java_home="/opt/a: {b}"),
        (sys.executable, "-S", WORKER, "ok"),
    )
    local_provider.recover("http://[::1]:8082")
    try:
        local_provider.start_worker(WorkerSpec("w", 3))
        until(lambda: runs(tmp_path, "w"))
        process = process_of(tmp_path, "w")
        assert process is not None
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert SECRET.encode() not in command + environment
        assert b"FIRESTEEL_OPTION_" not in environment
        folder = tmp_path / "workers" / "conf"
        assert [stat.S_IMODE(p.stat().st_mode) for p in (folder.parent, folder, *folder.iterdir())] == [
            0o700, 0o700, 0o600, 0o600,
        ]  # fmt: skip
        definitions = [a for a in command.decode().split("\0") if "=" in a]
        settings = load_settings(environ={}, config_file=folder / "config.yaml", definitions=definitions)
        assert settings.check() == []
        assert settings.get(RESOURCEMANAGER_ADDRESS) == "[::1]:8082"
        assert settings.get(TASKMANAGER_SLOTS) == 3
        assert settings.to_plain()["heartbeat.interval"] == "7 s"
        assert settings.to_plain()["firesteel.java.home"] == "/opt/a: {b}"
        assert settings.to_plain()["taskmanager.rpc.port"] == "0"
        assert load_secret(settings.to_plain()["firesteel.security.secret-file"], {}) == SECRET
    finally:
        local_provider.terminate()
    assert not list((tmp_path / "workers" / "conf").iterdir())


def test_a_start_that_was_cut_off_is_waited_for_and_then_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    folder = tmp_path / "workers"
    folder.mkdir()
    for name in ("cut-off", "late"):
        (folder / f"{name}.pid").touch()
    local_provider = LocalProcessProvider(context(tmp_path, clock))
    assert local_provider.recover("http://127.0.0.1:8082") == ["cut-off", "late"]
    assert local_provider.ended_workers() == []
    me = identify(os.getpid())
    assert me is not None
    (folder / "late.pid").write_text(f"{me.pid}\n{me.start}\n")
    clock.advance(NAMELESS_GRACE)
    assert local_provider.ended_workers() == [("cut-off", "its process never came to life")]
    local_provider.close()


def test_a_process_that_took_the_pid_of_a_dead_worker_is_no_worker(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "dead.pid").write_text(f"{os.getpid()}\n1\n")
    local_provider = LocalProcessProvider(context(tmp_path))
    assert local_provider.recover("http://127.0.0.1:8082") == []
    assert not (folder / "dead.pid").exists()
    local_provider.close()


def test_a_program_that_is_not_there_and_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    local_provider = LocalProcessProvider(context(tmp_path), ("/does/not/exist",))
    local_provider.recover("http://127.0.0.1:8082")
    with pytest.raises(WorkerError, match=r"can't be started: .*No such file"):
        local_provider.start_worker(WorkerSpec("w", 1))
    with pytest.raises(WorkerError, match="not an id"):
        local_provider.start_worker(WorkerSpec("../w", 1))
    assert not list((tmp_path / "workers").glob("*.pid"))
    local_provider.terminate()
    with pytest.raises(WorkerError, match="closed"):
        local_provider.start_worker(WorkerSpec("w", 1))
