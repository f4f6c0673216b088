"""A disk that is full, or gone, takes no JobMaster along: what it only notes is written later."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.protocol import messages as m
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster import job_process
from firesteel_jobmaster.job_process import _JobProcess
from firesteel_jobmaster.performer import InstructionPerformer
from firesteel_jobmaster.registry import ProcessRegistry, RegisteredProcess
from tests.unit.jobmaster.jobs import two_by_two

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_jobmaster_is_adopted_while_its_file_can_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_process, "pauses", lambda *_: iter([0.0] * 100))
    graph = two_by_two()
    process = _JobProcess.__new__(_JobProcess)
    process._registry, process._registering = ProcessRegistry(tmp_path), None
    is_full, write, noted = True, ProcessRegistry.write, list[str]()

    def write_entry(registry: ProcessRegistry, entry: RegisteredProcess) -> None:
        if is_full:
            raise FULL
        write(registry, entry)
        noted.append(entry.start.dispatcher_address)

    monkeypatch.setattr(ProcessRegistry, "write", write_entry)

    def adopted_by(number: int) -> Any:
        address = f"http://dispatcher-{number}"
        start = m.StartJob(graph.to_plain(), address, "token", "http://rm", address, number)
        return SimpleNamespace(job_id=graph.job_id, address="http://jm", token="jm", start_message=start)

    async def scenario() -> None:
        nonlocal is_full
        for number in (1, 2, 3):
            process._register(adopted_by(number))  # raises nothing: the call of the Dispatcher is answered
            await asyncio.sleep(0)
        is_full = False
        assert process._registering is not None
        await process._registering
        await asyncio.sleep(0)  # others that were under way would write now

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    entry = ProcessRegistry(tmp_path).read(graph.job_id)
    assert entry is not None
    assert entry.start.dispatcher_address == "http://dispatcher-3"
    assert noted == ["http://dispatcher-3"], "an earlier Dispatcher is not noted late"
    assert "No space left on device" in caplog.text


def test_output_that_can_not_be_written_crashes_no_jobmaster(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            raise FULL

    monkeypatch.setattr(sys, "stdout", Full())
    performer: Any = SimpleNamespace(_notes=SimpleNamespace(holds_back=lambda _: False))
    InstructionPerformer.perform(performer, do.WriteOutput("a line", False))
    assert "No space left on device" in caplog.text


def test_a_file_that_can_not_be_read_for_now_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = ProcessRegistry(tmp_path)
    path = registry.folder / f"{'a' * 32}.json"
    path.write_text("{}")
    read = Path.read_bytes

    def stale(file: Path) -> bytes:
        if file == path:
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(file)

    with monkeypatch.context() as away:
        away.setattr(Path, "read_bytes", stale)
        assert registry.read_all() == []
    assert path.exists()
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
        registry.remove("a" * 32)
    assert path.exists()
