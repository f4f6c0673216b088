"""A barrier passes a slow function in a second or two, whatever is in front of that: in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.common import WatermarkStrategy
from firesteel.functions.functions import FlatMapFunction, KeySelector, MapFunction
from firesteel.functions.source import NEED_SPLITS, Polled, ReaderContext, SourceBatch
from firesteel.graph.specs import OperatorKind as K
from firesteel.graph.specs import PartitionerKind as P
from firesteel.runtime.chain import stages
from firesteel.runtime.exchange.channels import ChannelId
from firesteel.runtime.exchange.flow_control import TimedLimit
from firesteel.runtime.exchange.local import LocalPipe
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.sources import source_input
from firesteel.runtime.task import task as task_module
from tests.unit.runtime.mini_job import SHELVES, ListReader, ListSource, MiniJob, Shelf, Vertex, Wires, bridged
from tests.unit.runtime.support import ManualClock
from tests.unit.runtime.test_exactly_once import operator, sink

SECONDS = 0.012
"""What a record takes."""
EACH = 300
"""Results of a record that expands."""


class Timed(Wires):
    """Channels that are bounded by time, as those of a slot are."""

    def __init__(self, loop: TaskLoop) -> None:
        super().__init__(loop, 1 << 20)

    def _pipe(self, channel: ChannelId) -> LocalPipe:
        if channel not in self.pipes:
            timed = TimedLimit(self.loop.clock, 1.0, 1)
            self.pipes[channel] = LocalPipe(channel, self.loop, self._window, timed=timed)
        return self.pipes[channel]


class Numbers(ListSource):
    """Without an end; it gives as many as it is asked for."""

    def create_reader(self, context: ReaderContext) -> ListReader:
        return NumbersReader(1)


class NumbersReader(ListReader):
    def poll(self, max_records: int) -> Polled[Any]:
        if not self._splits:
            return NEED_SPLITS
        split = self._splits[0]
        start: Any = split.position or 0
        self._splits[0] = split.at(start + max_records)
        return SourceBatch([(n, n) for n in range(start, start + max_records)], split.id, start + max_records)


class Slow(MapFunction[Any, Any]):
    """Takes time, of the clock that is moved by hand."""

    clock = ManualClock()

    def map(self, value: Any) -> Any:
        Slow.clock.now += SECONDS
        return value


class Expand(FlatMapFunction[Any, Any]):
    """Many results for one record."""

    def flat_map(self, value: Any) -> Iterator[Any]:
        for number in range(EACH):
            yield value[0], number


class ByNumber(KeySelector[tuple[int, int], int]):
    def get_key(self, value: tuple[int, int]) -> int:
        return value[1] % 100


def job(shape: str, parallelism: int, blocking: list[str]) -> MiniJob:
    """A source, perhaps a function that expands, in its chain or a task of its own, and a slow one."""
    strategy = WatermarkStrategy.no_watermarks()
    head = operator("source", K.SOURCE, Numbers(), extra={"watermark_strategy": strategy})
    expand, selector = operator("expand", K.FLAT_MAP, Expand()), ByNumber()
    edge = (P.HASH, selector) if shape.endswith("keyed") else (P.REBALANCE, None)
    first = [head, expand] if shape.startswith("chained") else [head]
    vertices, before = [Vertex("source", lambda: first, parallelism)], "source"
    if shape.startswith("expand"):
        vertices.append(Vertex("expand", lambda: [expand], parallelism, [("source", P.REBALANCE, None)]))
        before = "expand"
    vertices += [
        Vertex("slow", lambda: [operator("slow", K.MAP, Slow())], parallelism, [(before, *edge)]),
        Vertex("sink", lambda: [sink()], 1, [("slow", P.REBALANCE, None)]),
    ]
    splits: dict[str, list[list[Any]]] = {"source": [[] for _ in range(parallelism)]}
    wires = bridged(Timed, blocking)
    return MiniJob(vertices, splits, 7, wires=lambda loop, clock: wires(loop))


def until_complete(running: MiniJob, number: int) -> float:
    """Seconds until a checkpoint is complete."""
    began = running.clock.now
    while running.completed is None or running.completed.number < number:
        running.steps(1)
        assert running.clock.now < began + 600, "it takes ten minutes"
    return running.clock.now - began


@pytest.mark.parametrize(
    ("shape", "parallelism", "blocking"),
    [
        ("plain", 1, []),
        ("plain keyed", 2, []),
        ("plain", 1, ["slow"]),
        ("expand", 1, []),
        ("expand keyed", 2, []),
        ("expand", 1, ["expand", "slow"]),
        ("chained", 1, []),
        ("chained keyed", 2, []),
    ],
)
def test_a_barrier_waits_for_about_a_second_of_work(
    shape: str, parallelism: int, blocking: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "STEP_SECONDS", -1.0)  # one batch for each step
    SHELVES["shelf"] = Shelf()
    running = job(shape, parallelism, blocking)
    Slow.clock = running.clock
    for module in (stages, source_input):
        monkeypatch.setattr(module, "_now", running.clock.monotonic)
    took = []
    for _ in range(8):
        resume = running.clock.now + 3.0
        while running.clock.now < resume:
            running.steps(1)
        took.append(until_complete(running, running.trigger()))
    running.crash()
    # a record that expands is a whole: one is on its way at each task, and one waits in each channel in front of it
    records = {"plain": 0, "chained": 1, "expand": 1 + parallelism}[shape.split()[0]]
    most = 2.0 + records * EACH * SECONDS
    assert max(took[1:]) < most, took
    assert took[0] < 3 * most, took
