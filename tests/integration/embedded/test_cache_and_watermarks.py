"""Results that are kept for the next job, and watermarks that a source function gives itself: whole programs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.common import Time, Types
from firesteel.datastream import ProcessWindowFunction, SourceFunction
from firesteel.datastream.window import TimeWindow, TumblingEventTimeWindows
from tests.integration.embedded.programs import ANYWHERE, new_environment


@ANYWHERE
@pytest.mark.parametrize("place", ["embedded", pytest.param("processes", marks=pytest.mark.long)], indirect=True)
def test_the_second_job_computes_nothing(tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")
    Path(calls).touch()

    def square(number: int) -> tuple[int, int]:
        with open(calls, "a") as file:
            file.write(f"{number}\n")
        return number % 3, number * number

    def count() -> int:
        return len(Path(calls).read_text().splitlines())

    env = new_environment(2, firesteel__cache__directory=str(tmp_path))
    cached = env.from_sequence(1, 300).map(square, Types.TUPLE([Types.INT(), Types.LONG()])).cache()
    everything = sorted((n % 3, n * n) for n in range(1, 301))
    assert sorted(cached.execute_and_collect()) == everything
    assert count() == 300
    files = sorted(path.name for path in tmp_path.glob("firesteel-cache-*/*/*"))
    assert files == ["part-0-of-2", "part-1-of-2"]
    assert sorted(cached.execute_and_collect()) == everything
    sums = list(cached.key_by(lambda pair: pair[0]).sum(1).execute_and_collect())
    assert {key: max(total for k, total in sums if k == key) for key in range(3)} == {
        key: sum(n * n for n in range(1, 301) if n % 3 == key) for key in range(3)
    }
    assert count() == 300
    cached.invalidate()
    assert sorted(cached.execute_and_collect()) == everything
    assert count() == 600
    env.close()
    assert not list(tmp_path.glob("firesteel-cache-*"))


@ANYWHERE
def test_a_job_with_checkpoints_may_keep_results(tmp_path: Path) -> None:
    env = new_environment(2, firesteel__cache__directory=str(tmp_path))
    env.enable_checkpointing(50)
    cached = env.from_sequence(1, 300).map(str, Types.STRING()).cache()
    expected = sorted(str(number) for number in range(1, 301))
    for _ in range(2):
        assert sorted(cached.execute_and_collect()) == expected
    env.close()


class UntilSeen(SourceFunction[Any]):
    """Gives a window's records and a watermark behind them, and goes on when the window's result was seen."""

    def __init__(self, seen: str) -> None:
        self._seen, self._runs = seen, True

    def run(self, ctx: SourceFunction.SourceContext[Any]) -> None:
        for number in range(5):
            ctx.collect_with_timestamp(("a", number), 100 + number)
        ctx.emit_watermark(999)
        while self._runs and not os.path.exists(self._seen):
            time.sleep(0.01)
        ctx.collect_with_timestamp(("a", 7), 500)  # late
        ctx.collect_with_timestamp(("a", 8), 1500)

    def cancel(self) -> None:
        self._runs = False


class Elements(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterator[Any]:
        yield context.window().start, sorted(number for _, number in elements)


@ANYWHERE
def test_windows_fire_by_the_watermarks_of_a_source_function(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    stream = new_environment().add_source(UntilSeen(str(seen)))
    windows = stream.key_by(lambda pair: pair[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    with windows.process(Elements()).execute_and_collect() as results:
        assert next(results) == (0, [0, 1, 2, 3, 4])
        seen.touch()
        assert list(results) == [(1000, [8])]
