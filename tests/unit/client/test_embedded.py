"""The executor of embedded mode, as far as it goes without a cluster."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.client import embedded
from firesteel.client.console import Console
from firesteel.client.context import ProgramContext, running
from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import RestClient
from firesteel.common.configuration import Configuration
from firesteel.core.errors import FleetError
from firesteel.core.machine import usable_cores
from firesteel.datastream import StreamExecutionEnvironment


def test_on_windows_graphs_are_built_and_slots_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "before_threads_end", lambda action: None)
    monkeypatch.setattr(sys, "platform", "win32")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(str).print()
    assert "Collection Source" in env.get_execution_plan()
    with pytest.raises(FleetError, match="do not run on Windows"):
        env.execute()


def test_the_default_parallelism_is_the_cores_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = embedded.EmbeddedExecutor(Configuration())
    assert executor.default_parallelism() == usable_cores()
    monkeypatch.setenv("FIRESTEEL_OPTION_PARALLELISM_DEFAULT", "7")
    assert executor.default_parallelism() == 7


class SlowRest:
    """Accepts a job only after Ctrl-C has come."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.interrupted = threading.Event()
        self.cancelled = threading.Event()  # after it was accepted

    async def submit(self, job_graph: Any, blobs: Any) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.to_thread(self.interrupted.wait)
        self.calls.append("accepted")

    async def cancel(self, job_id: str) -> None:
        self.calls.append("cancelled")
        if "accepted" in self.calls:
            self.cancelled.set()


def test_ctrl_c_while_a_job_is_being_accepted_cancels_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rest, loop = SlowRest(), LoopThread("test")
    cluster = SimpleNamespace(rest=rest, loop=loop)
    monkeypatch.setattr(embedded, "_shared", SimpleNamespace(get=lambda settings, slots: cluster))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(str).print()
    try:
        with pytest.raises(KeyboardInterrupt):
            env.execute()
        rest.interrupted.set()
        assert rest.cancelled.wait(30)
    finally:
        rest.interrupted.set()
        loop.close()


class _Rest(RestClient):
    """Accepts every job."""

    async def submit(self, graph: Any, blobs: Any, sent: Any = None) -> None:
        pass


@pytest.mark.parametrize("command", [True, False])
def test_the_page_of_a_job_is_named_to_people_alone(command: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``firesteel run -t local``, and by a program on a terminal; not where a log or a program reads the output."""
    loop, stderr = LoopThread("test"), io.StringIO()
    cluster = SimpleNamespace(rest=_Rest("http://127.0.0.1:5", None), loop=loop)
    monkeypatch.setattr(embedded, "_shared", SimpleNamespace(get=lambda settings, slots: cluster))
    monkeypatch.setattr(sys, "stderr", stderr)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(str).print()
    try:
        with running(ProgramContext(Console(err=stderr))) if command else nullcontext():
            job_id = env.execute_async("j").get_job_id()
    finally:
        loop.close()
    assert stderr.getvalue() == (f"Dashboard: http://127.0.0.1:5/#/jobs/{job_id}\n" if command else "")
