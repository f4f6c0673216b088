"""Jobs are named by id, by the beginning of an id, or by name; verbs take several of them."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from typing import Any

import pytest

from firesteel.client.cli import exit_codes, show
from firesteel.client.cli.logs import owner_of
from firesteel.client.cli.named_jobs import Result, chosen_job, for_each_job
from firesteel.client.cli.top_table import JobRows
from firesteel.client.console import Console
from firesteel.client.rest_client import RestClient
from firesteel.core.errors import ConfigurationError, JobError, JobNotFoundError
from firesteel.core.ids import JobId


def job(digits: str, name: str, state: str = "RUNNING", start: int = 1) -> dict[str, Any]:
    return {"jid": digits.ljust(32, "0"), "name": name, "state": state, "start-time": start}


JOBS = [
    job("b07d", "words"), job("b07e", "orders"), job("c1", "b07d"), job("d1", "twice"), job("d2", "twice"),
    job("e1", "old", "FINISHED", 5), job("e2", "old", "FAILED", 9), job("e3", "words", "CANCELED", 99),
]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "digits"), [("b07e", "b07e"), ("B07E", "b07e"), ("words", "b07d"), ("b07d", "c1"), ("c", "c1")]
)
def test_a_job_that_runs_is_found_by_its_name_or_the_beginning_of_its_id(word: str, digits: str) -> None:
    """Its name goes first; one that has ended is not in the way of one that runs."""
    assert chosen_job(JOBS, word) == chosen_job(JOBS, word, ended=True) == digits.ljust(32, "0")


def test_a_word_that_means_several_jobs_is_refused_with_them() -> None:
    with pytest.raises(ConfigurationError, match=r"may be any of 2 jobs: b07d0000 \(words\), b07e0000 \(orders\)"):
        chosen_job(JOBS, "b")
    with pytest.raises(ConfigurationError, match=r"d1000000 \(twice\), d2000000 \(twice\)"):
        chosen_job(JOBS, "twice")


def test_of_jobs_that_have_ended_the_last_one_of_a_name_is_meant() -> None:
    assert chosen_job(JOBS, "old", ended=True) == "e2".ljust(32, "0")
    with pytest.raises(JobNotFoundError, match=r"\(old\) has already ended: it is FAILED"):
        chosen_job(JOBS, "old")
    for word in ("nothing", ""):
        with pytest.raises(JobNotFoundError, match="no job has the name"):
            chosen_job(JOBS, word, ended=True)


def act(job_id: JobId) -> Result:
    if job_id == "slow":
        raise KeyboardInterrupt
    if job_id == "bad":
        raise JobError("job bad has already ended", job_id)
    return f"did {job_id}", {"job": job_id}


def done(as_json: bool, *job_ids: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    parsed = argparse.Namespace(json=as_json, verb="cancel")
    code = for_each_job(parsed, Console(out, err), [JobId(job_id) for job_id in job_ids], act)
    return code, out.getvalue(), err.getvalue()


def test_one_of_several_jobs_that_fails_does_not_keep_the_others() -> None:
    assert done(False, "a", "bad", "b") == (
        exit_codes.FAILED, "did a\ndid b\n", "firesteel cancel: job bad has already ended\n",
    )  # fmt: skip
    code, out, _ = done(True, "a", "bad")
    assert code == exit_codes.FAILED
    assert json.loads(out) == {"jobs": [{"job": "a"}, {"job": "bad", "error": "job bad has already ended"}]}
    assert done(False, "a", "b")[0] == exit_codes.DONE


def test_ctrl_c_at_one_of_several_jobs_loses_no_results_of_others() -> None:
    code, out, _ = done(True, "a", "slow", "b")
    assert code == exit_codes.INTERRUPTED
    assert json.loads(out) == {"jobs": [{"job": "a"}, {"job": "slow", "error": "interrupted"}]}
    with pytest.raises(KeyboardInterrupt):
        done(False, "a", "slow", "b")


def test_one_job_alone_is_answered_as_ever() -> None:
    assert json.loads(done(True, "a")[1]) == {"job": "a"}
    with pytest.raises(JobError):
        done(False, "bad")


class Rest:
    """Answers by path; a list is worked off."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.waits: list[int] = []

    async def get(self, path: str) -> Any:
        answer = self.answers[path.strip("/").partition("/")[0]]
        return answer.pop(0) if isinstance(answer, list) else answer

    async def execution_result(self, job_id: str, wait_ms: int) -> None:
        self.waits.append(wait_ms)


def test_logs_are_those_of_a_job_that_is_named_else_of_a_taskmanager() -> None:
    def owner(word: str) -> str:
        return asyncio.run(owner_of(Rest(jobs={"jobs": JOBS}).get, word))

    assert owner("words") == "b07d".ljust(32, "0")
    assert owner("e2") == "e2".ljust(32, "0"), "its logs are there after its end"
    assert (owner("jobmanager"), owner("127.0.0.1:5-ab")) == ("jobmanager", "127.0.0.1:5-ab")


def test_the_verb_waits_until_a_job_has_ended() -> None:
    rest = Rest(jobs=[{"state": "RUNNING"}, {"state": "RUNNING"}, {"state": "FAILED"}])
    assert asyncio.run(show.end_of(rest, JobId("j")))["state"] == "FAILED"  # type: ignore[arg-type]
    assert len(rest.waits) == 2


def test_a_job_is_shown_with_its_page_and_its_last_failure() -> None:
    details = {"jid": "a" * 32, "name": "words", "state": "FAILED", "duration": 5000, "now": 9}
    failure = {"timestamp": 0, "taskName": "Map (1/2)#0", "stacktrace": "ValueError: boom\n"}
    plain = {"dashboard": "http://h:1/#/jobs/a", "failure": failure, "state": None, "kafka": None, "latencies": None}
    shown = show.job_lines(JobRows.of(details, None, 0, []), plain, Console(io.StringIO()))
    assert shown[0].startswith(f"words ({'a' * 32})  FAILED")
    assert shown[1] == "dashboard: http://h:1/#/jobs/a"
    assert shown[2].endswith("in Map (1/2)#0\nValueError: boom")
    assert (
        len(show.job_lines(JobRows.of(details, None, 0, []), {**plain, "failure": None}, Console(io.StringIO()))) == 3
    )


def test_the_page_of_a_job_is_in_the_dashboard() -> None:
    rest = RestClient("http://h:8081", None)
    assert (rest.dashboard_url(), rest.dashboard_url("ab")) == ("http://h:8081/", "http://h:8081/#/jobs/ab")
