"""The Dispatcher's core: jobs from submission to archive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firesteel_dispatcher.core import (
    CancelJob,
    DeleteJobData,
    DispatcherCore,
    JobConflictError,
    JobEndedError,
    StartJob,
    UnknownJobError,
)

EMPTY: dict[str, Any] = {"jid": "j", "start-time": 5, "timestamps": {"INITIALIZING": 5}, "vertices": []}


def submitted(core: DispatcherCore, job: str = "j", fingerprint: str = "f") -> list[Any]:
    return core.submitted(job, f"job {job}", fingerprint, EMPTY)


def test_a_job_is_started_once_however_often_it_is_submitted() -> None:
    core = DispatcherCore()
    assert submitted(core) == [StartJob("j")]
    assert submitted(core) == []
    with pytest.raises(JobConflictError, match="another graph"):
        submitted(core, fingerprint="other")
    assert core.is_known("j", "f")
    assert not core.is_known("k", "f")


def test_cancelling_reaches_a_job_that_is_being_started() -> None:
    core = DispatcherCore()
    submitted(core)
    assert core.cancel("j") == []
    assert core.started("j", "http://jm", "t") == [CancelJob("j", "http://jm", "t")]
    assert core.cancel("j") == [CancelJob("j", "http://jm", "t")]


def test_an_ended_job_can_not_be_cancelled_and_its_end_is_told_once() -> None:
    core = DispatcherCore()
    submitted(core)
    core.started("j", "http://jm", "t")
    core.state_changed("j", "RUNNING", {"RUNNING": 6})
    assert core.job("j").state == "RUNNING"
    archive = {**EMPTY, "state": "FINISHED", "timestamps": {"FINISHED": 9}}
    assert core.finished("j", archive) == [DeleteJobData("j")]
    assert core.finished("j", archive) == []
    core.state_changed("j", "RUNNING", {})  # late
    assert core.job("j").state == "FINISHED"
    assert core.started("j", "http://jm", "t") == []
    with pytest.raises(JobEndedError, match="ended as FINISHED"):
        core.cancel("j")


def test_a_job_without_jobmaster_fails_with_a_reason_or_is_cancelled_if_that_was_wanted() -> None:
    core = DispatcherCore()
    submitted(core)
    assert core.failed("j", "X", "no JobMaster", 105) == [DeleteJobData("j")]
    job = core.job("j")
    assert (job.state, job.archive["duration"], job.archive["end-time"]) == ("FAILED", 100, 105)
    assert job.archive["failure"]["message"] == "no JobMaster"
    assert core.failed("j", "X", "again", 200) == []
    submitted(core, "k")
    core.cancel("k")
    core.failed("k", "X", "never started", 105)
    assert (core.job("k").state, core.job("k").archive["failure"]) == ("CANCELED", None)


def test_unknown_jobs_are_refused() -> None:
    core = DispatcherCore()
    with pytest.raises(UnknownJobError, match="Job x not found"):
        core.cancel("x")
    with pytest.raises(UnknownJobError):
        core.finished("x", EMPTY)
    with pytest.raises(UnknownJobError):
        core.state_changed("x", "RUNNING", {})


@given(st.lists(st.sampled_from(["submit", "end"]), max_size=60), st.integers(1, 5))
def test_only_the_newest_ended_jobs_are_kept_and_no_running_one_is_forgotten(steps: list[str], kept: int) -> None:
    core = DispatcherCore(kept)
    running: list[str] = []
    ended: list[str] = []
    for number, step in enumerate(steps):
        if step == "submit":
            submitted(core, f"j{number}")
            running.append(f"j{number}")
        elif running:
            job = running.pop(len(running) // 2)
            core.finished(job, {**EMPTY, "state": "FINISHED"})
            ended.append(job)
    assert set(core.jobs) == {*running, *ended[-kept:]}
    assert core.counts() == {
        "jobs-running": len(running), "jobs-finished": min(kept, len(ended)), "jobs-cancelled": 0, "jobs-failed": 0,
    }  # fmt: skip
