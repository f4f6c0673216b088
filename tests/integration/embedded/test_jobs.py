"""Jobs from the program's side: results that are pulled, one after another, side by side, and big ones."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.core.errors import JobCancelledError
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from tests.files import files_below
from tests.integration.embedded.programs import (
    ANYWHERE,
    RUNS,
    ended,
    family,
    new_environment,
    resident,
    rest_of,
    run_directories,
    running,
    state_of,
    until,
)

pytestmark = pytest.mark.usefixtures("cluster")
NO_WATERMARKS = WatermarkStrategy.no_watermarks()
MIB = 1 << 20


def endless(per_second: float | None = None) -> DataGeneratorSource[int]:
    limit = None if per_second is None else RateLimiterStrategy.per_second(per_second)
    return DataGeneratorSource(lambda i: i, None, limit)


def slots() -> list[int]:
    return [slot.pid for slot in family(os.getpid())["slot"]]


@ANYWHERE
def test_results_whole_limited_and_none() -> None:
    env = new_environment(2)
    assert env.from_sequence(1, 100_000).execute_and_collect("limited", 7).__len__() == 7
    assert sorted(env.from_sequence(1, 50_000).execute_and_collect()) == list(range(1, 50_001))
    assert list(env.from_collection([1, 2]).filter(lambda _: False).execute_and_collect()) == []
    assert list(env.from_collection([]).execute_and_collect()) == []
    values = env.from_collection(["x" * 3_000_000, "y" * 9_000_000, "z"]).execute_and_collect()
    assert [len(value) for value in values] == [3_000_000, 9_000_000, 1]


@ANYWHERE
def test_an_abandoned_iterator_cancels_its_job() -> None:
    env = new_environment(2)
    results = env.from_source(endless(), NO_WATERMARKS, "endless").execute_and_collect()
    job = results.get_job_client()
    assert next(results) >= 0
    del results
    gc.collect()
    assert ended(job) == "CANCELED"
    with env.from_source(endless(100), NO_WATERMARKS, "endless").execute_and_collect() as results:
        job = results.get_job_client()
        next(results)
    assert ended(job) == "CANCELED"
    with pytest.raises(JobCancelledError):
        job.get_job_execution_result().result()


def test_a_slow_reader_holds_the_job_back() -> None:
    def large(number: int) -> bytes:
        return number.to_bytes(4, "little") * 4_000

    source = DataGeneratorSource(large)
    mine = resident(os.getpid())
    with new_environment(1).from_source(source, NO_WATERMARKS, "large").execute_and_collect() as results:
        first = [next(results) for _ in range(10)]
        assert first == [large(i) for i in range(10)]
        job = results.get_job_client()
        running(job)
        (slot,) = until(lambda: len(slots()) == 1 and slots(), "one slot process")
        records_read = settled(lambda: vertex(job)["metrics"]["read-records"])
        assert records_read < 3000  # 16 kB each: the buffers of slot and client
        assert resident(slot) < 300 * MIB
        assert resident(os.getpid()) < mine + 64 * MIB
        assert [next(results) for _ in range(10, 2000)] == [large(i) for i in range(10, 2000)]
        until(lambda: vertex(job)["metrics"]["read-records"] > records_read, "the job going on")


def vertex(job: Any, number: int = 0) -> Any:
    """What REST says about a vertex of the job."""
    return rest_of(job)["vertices"][number]


def settled(look: Callable[[], int]) -> int:
    """A number above 0, once it has stayed the same for three seconds: slots report each second."""
    last, since = look(), time.monotonic()

    def stands() -> bool:
        nonlocal last, since
        now = look()
        if now != last or not now:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 3

    until(stands, "a number that does not rise any more")
    return last


def many(value: int) -> Iterator[tuple[int, int]]:
    for number in range(10_000_000):
        yield value, number


def test_ten_million_results_of_one_record_keep_memory_flat_and_can_be_cancelled() -> None:
    env = new_environment(2)
    env.from_collection([1]).flat_map(many).key_by(lambda pair: pair[1] % 7).filter(lambda _: False).print()
    job = env.execute_async()
    mine = until(lambda: len(slots()) == 2 and slots(), "two slot processes")
    until(lambda: rest_of(job)["vertices"][-1]["metrics"]["read-records"] > 100_000, "records flowing")
    sizes = {pid: resident(pid) for pid in mine}

    def more() -> bool:
        for pid in mine:
            assert resident(pid) < sizes[pid] + 24 * MIB
        return bool(vertex(job, -1)["metrics"]["read-records"] > 1_000_000)

    until(more, "a tenth of the records")
    assert state_of(job) == "RUNNING"
    job.cancel().result()
    assert ended(job) == "CANCELED"


@pytest.mark.smoke
def test_one_environment_executes_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    env = new_environment(1)
    for number in range(3):
        env.from_collection([number]).print()
        result = env.execute(f"job {number}")
        assert result.get_job_id() is not None
    assert capsys.readouterr().out == "0\n1\n2\n"


def test_the_run_directory_does_not_grow_with_jobs() -> None:
    def size() -> int:
        (root,) = run_directories(RUNS)
        total = 0
        for file in files_below(root):
            with contextlib.suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    env = new_environment(1)
    payload = os.urandom(500_000)
    list(env.from_collection([payload]).execute_and_collect())
    before = size()
    for number in range(3):
        list(env.from_collection([payload + bytes([number])]).execute_and_collect())
    until(lambda: size() < before + 600_000, f"blobs of ended jobs being removed: {before} bytes, now {size()}")
