"""What notebooks and consoles show of environments, streams and results, and the jobs that an environment left."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from firesteel.common import CompletableFuture, Configuration, JobExecutionResult, JobStatus, Types
from firesteel.common.submitted_jobs import SubmittedJobs, submitted_jobs
from firesteel.core.errors import JobCancelledError, JobFailedError, PeerUnreachableError, RpcError
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.closeable_iterator import CloseableIterator
from tests.unit.core.notebook_kernel import in_notebook
from tests.unit.datastream.fakes import FakeExecutor, FakeJobClient, FakeResultStream, environment


@pytest.fixture(autouse=True)
def no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted_jobs, "_jobs", [])


def test_an_environment_shows_where_options_operators_and_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = in_notebook(monkeypatch)
    env = environment(execution__target="remote", rest__address="h", rest__port="99", s3__secret_key="xyz")
    text = env._repr_html_()
    assert "remote at http://h:99" in text
    assert "xyz" not in text
    assert "******" in text
    assert "No operators yet" in text
    env.from_collection([1]).map(str).name("<script>alert(1)</script>").print()
    text = env._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "<svg" in text
    assert repr(env) == "<StreamExecutionEnvironment: jobs run on remote at http://h:99, 2 operators for the next one>"
    shell.next_cell()
    env.execute_async()
    assert "of In[2]: RUNNING" in env._repr_html_()
    assert "a cluster inside this process" in environment()._repr_html_()


def test_a_stream_shows_its_type_and_its_operators() -> None:
    env = environment()
    stream = env.from_collection([1], Types.INT()).map(str, Types.STRING()).name("<b>")
    assert repr(stream) == f"<DataStream '<b>' of {Types.STRING()}>"
    text = stream._repr_html_()
    assert "<b>DataStream</b>" in text
    assert text.count("<b>") == 1
    assert str(Types.STRING()) in text
    assert text.count("<rect") == 2
    keyed = stream.key_by(lambda value: value)
    assert repr(keyed).startswith("<KeyedStream ")
    sink = keyed.print()
    assert repr(sink) == "<DataStreamSink 'Print to Std. Out'>"
    assert sink._repr_html_().count("<rect") == 3
    assert env._repr_html_().count("<rect") == 3, "nothing was taken from the program"
    assert repr(stream.union(keyed)).startswith("<DataStream 'Union' of ")


def collected(answers: list[Any]) -> tuple[CloseableIterator, FakeResultStream]:
    stream = FakeResultStream(answers)
    return CloseableIterator(stream, FakeJobClient(JobExecutionResult(FakeJobClient, 1), stream)), stream  # type: ignore[arg-type]


def test_results_that_a_notebook_shows_are_still_there() -> None:
    results, _ = collected([[("<b>", 1)], [], [("c", 2)], None, None])
    text = results._repr_html_()
    assert "2 results" in text
    assert "all have come" in text
    assert "&lt;b&gt;" in text
    assert results._repr_html_() == text
    assert "2 results so far" in repr(results)
    assert list(results) == [("<b>", 1), ("c", 2)]
    assert "2 of them were read" in results._repr_html_()


def test_a_reader_in_the_middle_gets_each_result_once() -> None:
    results, _ = collected([[1, 2, 3], [4], [5], None, None])
    assert next(results) == 1
    results._repr_html_()
    assert list(results) == [2, 3, 4, 5]


def test_of_endless_results_some_are_shown() -> None:
    results, stream = collected([list(range(800)) for _ in range(100)])
    text = results._repr_html_()
    assert len(stream.answers) == 98
    assert "and 1,580 more results" in text
    assert "more may come" in text
    assert len(re.findall("<td", text)) < 40
    results._repr_html_()
    assert len(stream.answers) == 98, "a second look fetches nothing more"
    results.close()
    assert list(results) == []
    assert "closed" in results._repr_html_()


def test_a_failed_job_is_shown_and_raised_behind_its_results() -> None:
    failure = JobFailedError("it failed: <b>")
    results, _ = collected([[1], failure, failure, failure])
    text = results._repr_html_()
    assert "the job failed: it failed: &lt;b&gt;" in text
    assert next(results) == 1
    with pytest.raises(JobFailedError):
        next(results)


def test_a_slow_first_result_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 7))
    monkeypatch.setattr("firesteel.datastream.closeable_iterator.time.monotonic", lambda: next(now))
    results, stream = collected([[] for _ in range(100)])
    assert "0 results" in results._repr_html_()
    assert len(stream.answers) > 90


def test_jobs_of_earlier_environments_are_cancelled() -> None:
    executor, elsewhere = FakeExecutor(), FakeExecutor()
    for _ in range(2):
        env = environment(executor)
        env.from_collection([1]).print()
        env.execute_async()
    other = StreamExecutionEnvironment(
        Configuration.from_dict({"execution.target": "remote", "rest.port": "9"}), elsewhere
    )
    other.from_collection([1]).print()
    other.execute_async()
    first, second = executor.clients
    first.result, second.status = JobCancelledError("it was cancelled"), JobStatus.FINISHED
    assert environment().cancel_jobs() == [first.job_id]
    assert (first.cancelled, second.cancelled, elsewhere.clients[0].cancelled) == (True, False, False)
    assert environment().cancel_jobs() == []


def test_jobs_whose_end_was_seen_are_forgotten() -> None:
    executor = FakeExecutor()
    env = environment(executor)
    env.from_collection([1]).print()
    env.execute()
    executor.result = JobFailedError("no")
    env.from_collection([1]).print()
    with pytest.raises(JobFailedError):
        env.execute()
    assert submitted_jobs._jobs == []


@pytest.mark.parametrize(
    ("answer", "cluster", "runs_on"),
    [
        (PeerUnreachableError("gone"), ("local",), False),
        (PeerUnreachableError("away"), ("remote", "http://h:1"), True),
        (RpcError("503"), ("remote", "http://h:1"), True),
        (JobFailedError("unknown"), ("remote", "http://h:1"), False),
    ],
)
def test_a_job_is_forgotten_only_if_it_has_ended(answer: Exception, cluster: tuple[str, ...], runs_on: bool) -> None:
    class Away(FakeJobClient):
        def get_job_status(self) -> Any:
            future: Any = super().get_job_execution_result()
            return future

    client = Away(answer, FakeResultStream([]))
    jobs = SubmittedJobs()
    jobs.add(client, cluster)
    assert [status for _, status in jobs.running(lambda job: True)] == ([None] if runs_on else [])
    assert bool(jobs._jobs) == runs_on


@pytest.mark.parametrize(("cluster", "runs_on"), [(("local",), False), (("remote", "http://h:1"), True)])
def test_a_job_whose_connection_was_closed_hinders_nobody(cluster: tuple[str, ...], runs_on: bool) -> None:
    class Closed(FakeJobClient):
        def get_job_status(self) -> Any:
            raise PeerUnreachableError("the connection to the cluster has been closed")

    jobs = SubmittedJobs()
    jobs.add(Closed(JobFailedError("-"), FakeResultStream([])), cluster)
    assert bool(jobs.running(lambda job: True)) == runs_on


def test_a_cluster_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firesteel.common.submitted_jobs._ANSWER_SECONDS", 0.05)
    questions: list[CompletableFuture[JobStatus]] = []

    class Away(FakeJobClient):
        def get_job_status(self) -> CompletableFuture[JobStatus]:
            questions.append(CompletableFuture())
            return questions[-1]

    jobs = SubmittedJobs()
    for _ in range(50):
        jobs.add(Away(JobFailedError("-"), FakeResultStream([])), ("remote", "http://h:1"))
    before = time.monotonic()
    assert [status for _, status in jobs.running(lambda job: True)] == [None] * 50
    assert time.monotonic() - before < 1
    assert len(questions) == 50
    assert all(question.cancelled() for question in questions), "nobody waits for the answers any more"


def test_a_program_of_many_jobs_keeps_few() -> None:
    jobs = SubmittedJobs()
    for _ in range(1_000):
        client = FakeJobClient(JobFailedError("-"), FakeResultStream([]))
        client.status = JobStatus.FINISHED
        jobs.add(client, ("local",))
    assert len(jobs._jobs) <= 101
