"""Blocking calls: bounded threads for each kind, deadlines, and processes that end all the same."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.config import Settings
from firesteel.core.call_pool import CallPool, PoolThread, close_in_time
from firesteel.rest.job_archives import ArchivePlace
from firesteel_dispatcher import archiving
from firesteel_dispatcher.archiving import Archiver

ROOT = Path(__file__).parents[3]


def test_calls_of_one_thread_are_done_one_after_the_other() -> None:
    pool, go_on, order = CallPool("store", threads=1, deadline=None), threading.Event(), list[int]()

    def wait() -> None:
        assert go_on.wait(20)
        order.append(1)

    first = pool.submit(wait)
    second = pool.submit(order.append, 2)
    third = pool.submit(order.append, 3)
    assert third.cancel()
    go_on.set()
    first.result(20)
    second.result(20)
    assert order == [1, 2]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(20)
    pool.shutdown()
    assert [thread for thread in threading.enumerate() if thread.name == "store"] == []
    with pytest.raises(RuntimeError, match="takes no more calls"):
        pool.submit(order.append, 4)


def test_threads_are_bounded_and_used_again() -> None:
    pool, go_on = CallPool("some", threads=3, deadline=None), threading.Barrier(4)
    calls = [pool.submit(go_on.wait, 20) for _ in range(3)]
    waiting = [pool.submit(threading.get_ident) for _ in range(20)]
    assert sum(thread.name == "some" for thread in threading.enumerate()) == 3
    assert not any(call.done() for call in waiting)
    go_on.wait(20)
    threads = {call.result(20) for call in waiting}
    assert {call.result(20) for call in calls} == {0, 1, 2}
    assert len(threads) <= 3
    pool.shutdown()


def test_a_call_past_its_deadline_is_given_up_and_one_that_waits_is_never_made() -> None:
    async def run() -> None:
        pool, go_on, calls = CallPool("hung", threads=1, deadline=0.05), threading.Event(), list[int]()

        def hang() -> None:
            assert go_on.wait(20)

        with pytest.raises(TimeoutError, match=r"hung: .*hang has not returned within 0\.05 s, and was given up"):
            await pool.call(hang)
        with pytest.raises(OSError, match="append has not returned"):
            await pool.call(calls.append, 1)
        go_on.set()
        pool.shutdown()
        assert calls == []

    asyncio.run(run())


def test_errors_of_the_function_are_its_own_and_context_comes_along() -> None:
    async def run() -> None:
        pool, variable = CallPool("work"), contextvars.ContextVar[int]("variable")
        variable.set(5)
        assert await pool.call(variable.get) == 5

        def refuse() -> None:
            raise TimeoutError("its own")

        with pytest.raises(TimeoutError, match="its own"):
            await pool.call(refuse)
        pool.shutdown()

    asyncio.run(run())


def test_a_pool_that_stops_cancels_the_calls_that_wait() -> None:
    pool, go_on, entered = CallPool("ending", threads=1, deadline=None), threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        assert go_on.wait(20)

    hung, waits = pool.submit(hang), pool.submit(int)
    assert entered.wait(20)
    pool.shutdown(wait=False, cancel_futures=True)
    assert (hung.done(), waits.cancelled()) == (False, True)
    go_on.set()
    hung.result(20)


def test_a_process_ends_while_calls_hang() -> None:
    program = (
        "import asyncio, threading\n"
        "from firesteel.core.call_pool import CallPool\n"
        "async def run():\n"
        "    try:\n"
        "        await CallPool('hung', deadline=0.01).call(threading.Event().wait)\n"
        "    except TimeoutError:\n"
        "        print('given up')\n"
        "asyncio.run(run())\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "given up\n")


def test_where_the_end_of_the_process_allows_no_new_thread_calls_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: PoolThread) -> None:
        raise RuntimeError(reason)

    async def main() -> object:
        return await CallPool("late").call(lambda: threading.current_thread() is threading.main_thread())

    monkeypatch.setattr(PoolThread, "start", start)
    reason = "can't create new thread at interpreter shutdown"
    assert asyncio.run(main()) is True
    reason = "can't start new thread"
    with pytest.raises(RuntimeError, match="can't start new thread"):
        asyncio.run(main())


def test_where_the_system_has_no_more_threads_a_call_is_refused_for_good_or_waits_for_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(thread: PoolThread) -> None:
        raise RuntimeError("can't start new thread")

    pool, go_on, entered, calls = CallPool("short", deadline=None), threading.Event(), threading.Event(), list[str]()

    def hang() -> None:
        entered.set()
        assert go_on.wait(20)

    with monkeypatch.context() as patched:
        patched.setattr(PoolThread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(calls.append, "refused")
    hung = pool.submit(hang)
    assert entered.wait(20)
    with monkeypatch.context() as patched:
        patched.setattr(PoolThread, "start", start)
        waiting = pool.submit(calls.append, "after the other")
    go_on.set()
    hung.result(20)
    waiting.result(20)
    assert calls == ["after the other"]
    pool.shutdown()


def test_what_does_not_close_in_time_is_left(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    asyncio.run(close_in_time(lambda: go_on.wait(20), "the receiver", seconds=0.05))
    go_on.set()
    assert "the receiver could not be closed in time" in caplog.text


class Hung(ArchivePlace):
    """A directory that does not answer."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, job_id: str, content: bytes) -> None:
        self.begun.set()
        self._hang()

    def listed(self) -> dict[str, str]:
        self._hang()
        return {}

    def _hang(self) -> None:
        was_told = self.go_on.wait(15)
        self.go_on.set()  # a test that fails does so once
        assert was_told

    def read(self, job_id: str) -> bytes | None:
        return None

    def remove(self, job_id: str) -> None:
        pass


def test_a_directory_of_archives_that_hangs_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Hung()
    monkeypatch.setattr(archiving, "open_place", lambda *_: place)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        archiver = Archiver(Settings({"jobmanager.archive.fs.dir": "/hung"}), lambda work, name: loop.create_task(work))
        for number in range(40):  # more than any shared pool has threads
            job = f"{number:032x}"
            archiver.ended(job, {"end-time": 1, "config": {}, "vertices": [], "jid": job})
        async with asyncio.timeout(10):
            await loop.run_in_executor(None, place.begun.wait)
            await loop.run_in_executor(None, int)  # as getaddrinfo: every call of a peer by its name
        place.go_on.set()
        await archiver.drain()

    asyncio.run(run())


def _without_pool(path: Path) -> Iterator[str]:
    code = path.read_text(encoding="utf-8")
    if "run_in_executor" not in code:  # to parse all files takes seconds
        return
    calls = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call))
    for call in calls:
        is_meant = isinstance(call.func, ast.Attribute) and call.func.attr == "run_in_executor"
        if is_meant and isinstance(call.args[0], ast.Constant):
            yield f"{path.relative_to(ROOT)}:{call.lineno}"


def test_nothing_uses_the_default_executor_of_a_loop() -> None:
    places = [
        use for part in ("libs", "services") for path in (ROOT / part).rglob("*.py") for use in _without_pool(path)
    ]
    assert places == [], "use the CallPool of its kind (firesteel.core.call_pool); the linter forbids asyncio.to_thread"
