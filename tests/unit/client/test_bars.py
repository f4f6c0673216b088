"""Bars for savepoints and uploads, and the lines that show them."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firesteel.client import remote
from firesteel.client.bars import CountedBytes, bar
from firesteel.client.cli import savepoints
from firesteel.client.cli.savepoints import SavepointProgress
from firesteel.client.console import Console
from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import RestClient
from firesteel.client.waiting import waited
from firesteel.core.errors import CheckpointError, RpcError
from firesteel.core.ids import JobId
from firesteel.testing.clock import ManualClock
from tests.unit.client.test_attached import on_terminal
from tests.unit.client.test_progress import graph


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 4, "[....................]   0 %"),
        (1, 2, "[##########..........]  50 %"),
        (999, 1000, "[###################.]  99 %"),
        (7, 7, "[####################] 100 %"),
        (9, 7, "[####################] 100 %"),
        (0, 0, ""),
    ],
)
def test_a_bar_is_full_at_the_end_only(done: int, total: int, text: str) -> None:
    assert bar(done, total) == text


def savepoint(number: int, acknowledged: int, **more: Any) -> dict[str, Any]:
    figures = {"num_subtasks": 8, "num_acknowledged_subtasks": acknowledged, "state_size": 3 << 20}
    return {"id": number, "is_savepoint": True, "status": "IN_PROGRESS", **figures, **more}


def test_a_savepoint_says_how_many_subtasks_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savepoints, "_LOOK_SECONDS", 0.0)
    histories: list[Any] = [
        {"history": []},
        {"history": [savepoint(4, 8, status="COMPLETED"), savepoint(5, 1, is_savepoint=False)]},
        RpcError("the Dispatcher is being replaced"),
        {"history": [savepoint(6, 2), savepoint(3, 7)]},
        {"history": [savepoint(6, 8, status="COMPLETED")]},
    ]
    lines: list[str] = []

    class Rest:
        async def get(self, path: str) -> Any:
            lines.append(progress.text())
            if not histories:
                done.set()
                return {"history": []}
            answer = histories.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    progress = SavepointProgress(cast(RestClient, Rest()), JobId("0" * 32))
    done: asyncio.Event

    async def follow(failure: Exception | None) -> str:
        nonlocal done
        done = asyncio.Event()

        async def location() -> str:
            await done.wait()
            if failure is not None:
                raise failure
            return "/s/savepoint-1"

        return await progress.followed(location())

    assert asyncio.run(follow(None)) == "/s/savepoint-1"
    assert lines[:4] == ["The savepoint is taken"] * 4
    assert lines[4:] == ["Savepoint [#####...............]  25 %  2 of 8 subtasks, 3.0 MiB"] * 2
    with pytest.raises(CheckpointError, match="no"):
        asyncio.run(follow(CheckpointError("no")))


def test_what_is_waited_for_is_said_anew_each_time() -> None:
    console, shown = on_terminal()
    clock = ManualClock()
    texts = iter(["one", "two"])

    def result(timeout: float | None) -> str:
        clock.advance(timeout or 0.0)
        if clock.monotonic() > 1.3:
            return "done"
        raise TimeoutError

    assert waited(console, lambda: next(texts), result, clock) == "done"
    assert "one ... 0:00:01\r" in shown.getvalue()
    assert "two ... 0:00:01\r" in shown.getvalue()


def test_an_upload_counts_what_was_read() -> None:
    parts: list[int] = []
    stream = CountedBytes(b"x" * 100, parts.append)
    while stream.read(40):
        pass
    assert parts == [40, 40, 20, 0]


def test_a_terminal_hears_how_much_of_a_program_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.client.waiting.SILENT_SECONDS", 0.0)
    loop = LoopThread("test")
    console, shown = on_terminal()

    class Rest:
        async def submit(self, graph: Any, blobs: Any, sent: Any = None) -> None:
            if sent is not None:
                sent(1 << 20, 4 << 20)
                while "Sending" not in shown.getvalue():
                    await asyncio.sleep(0.01)

    connection: Any = SimpleNamespace(loop=loop, rest=Rest())
    try:
        remote._upload(connection, graph(), {}, console)
        assert "Sending the program [#####...............]  25 %  1.0 of 4.0 MiB ..." in shown.getvalue()
        remote._upload(connection, graph(), {}, None)
        remote._upload(connection, graph(), {}, Console(io.StringIO(), io.StringIO(), io.StringIO()))
    finally:
        loop.close()
