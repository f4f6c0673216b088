"""Jobs from the program's side: results that are pulled, one after another, side by side, and big ones."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from firesteel.common import WatermarkStrategy
from firesteel.core.errors import JobCancelledError, JobFailedError, NoResourceAvailableError
from firesteel.datastream import MapFunction, RuntimeContext
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from tests.integration.embedded.programs import (
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
    return [one.pid for one in family(os.getpid())["slot"]]


def test_results_whole_limited_and_none() -> None:
    env = new_environment(2)
    assert env.from_sequence(1, 100_000).execute_and_collect("limited", 7).__len__() == 7
    assert sorted(env.from_sequence(1, 50_000).execute_and_collect()) == list(range(1, 50_001))
    assert list(env.from_collection([1, 2]).filter(lambda _: False).execute_and_collect()) == []
    assert list(env.from_collection([]).execute_and_collect()) == []
    values = env.from_collection(["x" * 3_000_000, "y" * 9_000_000, "z"]).execute_and_collect()
    assert [len(value) for value in values] == [3_000_000, 9_000_000, 1]


def test_an_abandoned_iterator_cancels_its_job() -> None:
    env = new_environment(2)
    results = env.from_source(endless(), NO_WATERMARKS, "endless").execute_and_collect()
    job = results.get_job_client()
    assert next(results) >= 0
    began = time.monotonic()
    del results
    gc.collect()
    assert ended(job) == "CANCELED"
    assert time.monotonic() - began < 3
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
        running(results.get_job_client())
        (slot,) = until(lambda: len(slots()) == 1 and slots(), "one slot process")
        time.sleep(0.5)
        size = resident(slot)
        made = rest_of(results.get_job_client())["vertices"][0]["metrics"]["write-records"]
        time.sleep(1.5)
        assert resident(slot) < size + 8 * MIB
        assert resident(os.getpid()) < mine + 64 * MIB
        assert rest_of(results.get_job_client())["vertices"][0]["metrics"]["write-records"] <= max(made, 3000)
        assert [next(results) for _ in range(10, 2000)] == [large(i) for i in range(10, 2000)]


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
    for _ in range(4):
        time.sleep(0.3)
        for pid in mine:
            assert resident(pid) < sizes[pid] + 24 * MIB
    assert state_of(job) == "RUNNING"
    began = time.monotonic()
    job.cancel().result()
    assert ended(job) == "CANCELED"
    assert time.monotonic() - began < 3


class Waiting(MapFunction):  # type: ignore[type-arg]
    """Holds its record until a file appears, and keeps a diary of who runs when."""

    def __init__(self, gate: Path, name: str) -> None:
        self.gate, self.name = gate, name

    def open(self, runtime_context: RuntimeContext) -> None:
        (self.gate.parent / f"{self.name}-{runtime_context.get_index_of_this_subtask()}").touch()

    def map(self, value: Any) -> Any:
        while not self.gate.exists():
            time.sleep(0.02)
        return value


def test_one_environment_executes_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    env = new_environment(1)
    for number in range(3):
        env.from_collection([number]).print()
        result = env.execute(f"job {number}")
        assert result.get_job_id() is not None
    assert capsys.readouterr().out == "0\n1\n2\n"


def test_the_run_directory_does_not_grow_with_jobs() -> None:
    def size() -> int:
        (root,) = run_directories()
        return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())

    env = new_environment(1)
    payload = os.urandom(500_000)
    list(env.from_collection([payload]).execute_and_collect())
    before = size()
    for number in range(3):
        list(env.from_collection([payload + bytes([number])]).execute_and_collect())
    until(lambda: size() < before + 600_000, f"blobs of ended jobs being removed: {before} bytes, now {size()}", 5)


def test_jobs_queue_for_slots(tmp_path: Path) -> None:
    stop_embedded_cluster()  # one with exactly two slots
    try:
        options = {"taskmanager__numberOfTaskSlots": "2"}
        envs = [new_environment(2, **options) for _ in range(3)]
        jobs = []
        for number, env in enumerate(envs):
            gate = tmp_path / f"gate{number}"
            env.from_sequence(1, 2).map(Waiting(gate, f"open{number}")).print()
            jobs.append(env.execute_async(f"job {number}"))
        running(jobs[0])
        assert [state_of(job) for job in jobs[1:]] == ["RUNNING"] * 2
        assert not list(tmp_path.glob("open[12]-*"))
        states = rest_of(jobs[1])["vertices"][0]["tasks"]
        assert states["RUNNING"] == states["DEPLOYING"] == 0
        jobs[2].cancel().result()  # one that waits can be cancelled
        assert ended(jobs[2]) == "CANCELED"
        (tmp_path / "gate0").touch()
        assert ended(jobs[0]) == "FINISHED"
        running(jobs[1])
        (tmp_path / "gate1").touch()
        assert ended(jobs[1]) == "FINISHED"
        too_wide = new_environment(3, **options)
        too_wide.from_sequence(1, 2).print()
        with pytest.raises((JobFailedError, NoResourceAvailableError), match=r"3.*2|2.*3"):
            too_wide.execute()
    finally:
        stop_embedded_cluster()
