"""The watch over what slot processes use."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping

import pytest

from firesteel.core.process import ProcessId
from firesteel_taskmanager import memory
from firesteel_taskmanager.memory import MemoryWatch, SlotUse


def test_a_measurement_that_fails_does_not_end_the_taskmanager(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "INTERVAL", 0.001)
    answers: list[Exception | Mapping[str, SlotUse]] = [
        OSError(errno.EMFILE, "Too many open files"),
        {"slot-1": SlotUse(1 << 20, 0.5)},
    ]

    def measure(_: Mapping[str, ProcessId]) -> Mapping[str, SlotUse]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        uses: asyncio.Queue[Mapping[str, SlotUse]] = asyncio.Queue()
        watch = MemoryWatch(lambda: {"slot-1": ProcessId(100, 5)}, lambda: None, uses.put_nowait, measure)
        running = asyncio.ensure_future(watch.run())
        first = asyncio.ensure_future(uses.get())
        await asyncio.wait({running, first}, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done()
        assert first.result() == {"slot-1": SlotUse(1 << 20, 0.5)}
        running.cancel()

    asyncio.run(main())
    assert "Too many open files" in caplog.text
