"""Results of ``execute_and_collect`` pulled from a job that fails, restarts or is out of reach behind their end."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, cast

import pytest

from firesteel.client import results as client_results
from firesteel.client.loop_thread import LoopThread
from firesteel.client.rest_client import CollectedResults, RestClient
from firesteel.client.results import RestResultStream
from firesteel.core.errors import JobError, JobFailedError, JobNotFoundError, PeerUnreachableError

RESULTS = ["a", "b", "c"]
LIMIT = 20.0
"""Seconds after which a job that does not end fails its test."""


class Job:
    """A job that ends when a task of it has heard that all results have arrived.

    Args:
        behind_the_end: what becomes of the acknowledgements, one by one; an error, or None: it arrives.
        needed: so many have to arrive: each task but the last one is followed by another.
        failure: how the job ends.
    """

    def __init__(
        self, behind_the_end: Sequence[Exception | None] = (), needed: int = 1, failure: JobError | None = None
    ) -> None:
        self._script, self._needed, self._failure = list(behind_the_end), needed, failure
        self.cancelled = 0
        self._over = asyncio.Event()

    async def collect(self, job: str, operator: str, offset: int, max_bytes: int, wait_ms: int) -> CollectedResults:
        if offset < len(RESULTS):
            values = RESULTS[offset : offset + 2]
            return CollectedResults(offset, len(values), offset + 2 >= len(RESULTS), "RUNNING", pickle.dumps(values))
        error = self._script.pop(0) if self._script else None
        if error is not None:
            raise error
        self._needed -= 1
        if self._needed == 0:
            self._over.set()
        return CollectedResults(offset, 0, True, "RUNNING", b"")

    async def cancel(self, job: str) -> bool:
        self.cancelled += 1
        return True

    async def outcome(self) -> None:
        await asyncio.wait_for(self._over.wait(), LIMIT)
        if self._failure is not None:
            raise self._failure


Reading = Callable[[Job], RestResultStream]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setattr(client_results, "_FIRST_PAUSE", 0.0)
    loop = LoopThread("test")
    yield lambda job: RestResultStream("1" * 32, "op", cast(RestClient, job), loop, job.outcome)
    loop.close()


def all_of(stream: RestResultStream) -> list[Any]:
    values: list[Any] = []
    while (more := stream.fetch()) is not None:
        values += more
    return values


def test_the_last_fetch_waits_for_the_end_of_the_job(reading: Reading) -> None:
    job = Job()
    stream = reading(job)
    assert all_of(stream) == RESULTS
    assert stream.fetch() is None
    stream.close()
    assert job.cancelled == 0


@pytest.mark.parametrize("needed", [2, 4])
def test_a_task_that_begins_anew_behind_the_end_hears_that_all_has_arrived(reading: Reading, needed: int) -> None:
    assert all_of(reading(Job(needed=needed))) == RESULTS


@pytest.mark.parametrize("error", [PeerUnreachableError("no answer"), JobNotFoundError("not here")])
def test_an_acknowledgement_that_is_lost_is_repeated(reading: Reading, error: Exception) -> None:
    job = Job([error, error])
    assert all_of(reading(job)) == RESULTS
    assert job.cancelled == 0


def test_how_the_job_ends_comes_behind_the_results(reading: Reading) -> None:
    job = Job(failure=JobFailedError("commit"))
    stream = reading(job)
    assert stream.fetch() == ["a", "b"]
    assert stream.fetch() == ["c"]
    for _ in range(2):
        with pytest.raises(JobFailedError, match="commit"):
            stream.fetch()
    assert job.cancelled == 0


def test_a_job_that_begins_anew_behind_the_end_says_so_and_is_cancelled(reading: Reading) -> None:
    job = Job([None, JobError("restarted from its beginning")], needed=3)
    stream = reading(job)
    assert stream.fetch() == ["a", "b"]
    assert stream.fetch() == ["c"]
    for _ in range(2):
        with pytest.raises(JobError, match="restarted from its beginning"):
            stream.fetch()
    assert job.cancelled == 1


def test_a_job_that_begins_anew_in_the_middle_says_so_and_is_cancelled(reading: Reading) -> None:
    class Anew(Job):
        async def collect(self, job: str, operator: str, offset: int, max_bytes: int, wait_ms: int) -> CollectedResults:
            if offset:
                raise JobError("restarted from its beginning")
            return await super().collect(job, operator, offset, max_bytes, wait_ms)

    job = Anew()
    stream = reading(job)
    assert stream.fetch() == ["a", "b"]
    for _ in range(2):
        with pytest.raises(JobError, match="restarted from its beginning"):
            stream.fetch()
    assert job.cancelled == 1


def test_a_cluster_that_is_out_of_reach_at_the_end_is_asked_to_cancel_the_job(reading: Reading) -> None:
    class Lost(Job):
        async def outcome(self) -> None:
            raise PeerUnreachableError("no answer")

    job = Lost()
    with pytest.raises(PeerUnreachableError):
        all_of(reading(job))
    assert job.cancelled == 1


def test_a_reader_that_waits_has_read_all_when_another_thread_closes_the_results(reading: Reading) -> None:
    job = Job()
    stream = reading(job)
    assert stream.fetch() == RESULTS[:2]

    class ClosedMeanwhile:
        def result(self) -> CollectedResults:
            stream.close()
            raise CancelledError

        def cancel(self) -> bool:
            return True

    stream._pull.cancel()
    stream._pull = cast(Any, ClosedMeanwhile())
    assert stream.fetch() is None
    assert stream.fetch() is None
    assert job.cancelled == 1
