"""Whoever waits for a job of a cluster elsewhere is told why it is restarted."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast

import pytest

from firesteel.client import failure_watch, remote
from firesteel.client.failure_watch import FailureWatch, watch_failures
from firesteel.common import Configuration
from firesteel.core.errors import JobNotFoundError, PeerUnreachableError
from firesteel.datastream import StreamExecutionEnvironment

STACK = "Traceback\nValueError: boom\nThe record at hand: 7\n"


def entry(time: int, answer: str, stack: str = STACK) -> dict[str, Any]:
    return {"exceptionName": "ValueError", "stacktrace": stack, "timestamp": time, "firesteel-answer": answer}


def exceptions(*newest_first: dict[str, Any]) -> dict[str, Any]:
    return {"exceptionHistory": {"entries": list(newest_first), "truncated": False}}


def test_each_failure_is_told_once_and_its_traceback_when_it_is_new() -> None:
    messages: list[str] = []
    watch = FailureWatch("job 'x' (ab)", messages.append)
    watch.look(exceptions(entry(1, "restart 1 in 1 s")))
    watch.look(exceptions(entry(2, "restart 2 in 1.5 s"), entry(1, "restart 1 in 1 s")))
    watch.look(exceptions(entry(3, "restart 3 in 2 s", "OSError"), entry(2, "restart 2 in 1.5 s")))
    watch.look(exceptions(entry(4, ""), entry(3, "restart 3 in 2 s")))
    assert messages == [
        "job 'x' (ab) failed with ValueError; restart 1 in 1 s\nTraceback\nValueError: boom\nThe record at hand: 7",
        "job 'x' (ab) failed with ValueError; restart 2 in 1.5 s",
        "job 'x' (ab) failed with ValueError; restart 3 in 2 s\nOSError",
    ], "the last one ends the job, and is raised"


class Rest:
    """Answers by script."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)

    async def get(self, path: str) -> Any:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("end", [[exceptions(), {"status": "FINISHED"}], [JobNotFoundError("gone")]])
def test_the_watch_looks_until_the_job_has_ended(end: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_watch, "INTERVAL_SECONDS", 0)
    messages: list[str] = []
    failed_once = exceptions(entry(1, "restart 1 in 1 s"))
    rest = Rest(
        exceptions(),
        {"status": "RUNNING"},
        PeerUnreachableError("no leader"),
        failed_once,
        {"status": "RESTARTING"},
        *end,
    )
    asyncio.run(watch_failures(cast(Any, rest), "ab", FailureWatch("job", messages.append)))
    assert len(messages) == 1
    assert not rest.script


class Cluster:
    """Takes a job, which fails once."""

    def __init__(self) -> None:
        self.loop = self.rest = self
        self.begun: list[Any] = []

    def run(self, submission: Any) -> None:
        assert submission is None

    def submit(self, graph: Any, blobs: Any) -> None:
        pass

    def start(self, work: Any) -> None:
        self.begun.append(work)

    async def get(self, path: str) -> Any:
        if path.endswith("status"):
            return {"status": "FINISHED"}
        return exceptions(entry(1, "restart 1 in 1 s"))


@pytest.mark.parametrize("attached", ["true", "false"])
def test_a_script_that_waits_for_its_job_logs_why_it_is_restarted(
    attached: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    monkeypatch.setattr(remote, "connect", lambda settings: cluster)
    monkeypatch.setattr(failure_watch, "INTERVAL_SECONDS", 0)
    configuration = Configuration.from_dict({"execution.attached": attached})
    env = StreamExecutionEnvironment(configuration, executor=remote.RemoteExecutor(configuration))
    env.from_collection([1]).print()
    env.execute_async("orders")
    for work in cluster.begun:
        asyncio.run(work)
    expected = "job 'orders' (.*) failed with ValueError; restart 1 in 1 s\nTraceback"
    assert bool(re.search(expected, caplog.text)) is (attached == "true")
