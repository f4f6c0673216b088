"""Tasks with threads of their own, and what happens when somebody downstream is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from firesteel.functions.functions import MapFunction, SinkFunction
from firesteel.functions.source import END, AsyncSourceReader, Boundedness, EnumeratorSpec, Source, SourceBatch, Split
from firesteel.graph.specs import OperatorKind, OutputSpec, PartitionerKind
from tests.integration.runtime.chains import line, numbers, spec, split
from tests.integration.runtime.slot_process import SlotProcess


class BlockingMap(MapFunction[int, int]):
    """Runs in a thread of its own."""

    blocking = True

    def map(self, value: int) -> int:
        """Adds nothing, but waits now and then."""
        if value % 1000 == 0:
            time.sleep(0.001)
        return value


def test_a_blocking_task_between_two_others_keeps_order_and_loses_nothing(slot: SlotProcess) -> None:
    forward = PartitionerKind.FORWARD
    _, _, last = slot.deploy(
        [
            line(numbers(0, 0), output=OutputSpec(0, 0, forward)),
            line(spec(OperatorKind.MAP, BlockingMap()), output=OutputSpec(0, 1, forward)),
            line(spec(OperatorKind.MAP, lambda n: n), spec(OperatorKind.COLLECT)),
        ],
        [(0, 1, "FORWARD"), (1, 2, "FORWARD")],
    )
    slot.give_splits([split(0, 100_000)])
    assert slot.collect_all(last) == list(range(100_000))
    slot.wait_for_state("FINISHED", last)
    assert slot.release() == "OUTCOME RETURNED"


def test_a_blocking_source_and_sink_in_one_chain(slot: SlotProcess) -> None:
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, BlockingMap()), spec(OperatorKind.COLLECT))])
    slot.give_splits([split(0, 20_000)])
    assert slot.collect_all(task) == list(range(20_000))
    slot.wait_for_state("FINISHED", task)
    assert slot.release() == "OUTCOME RETURNED"


class Ticks(Source[int]):
    """Reads on asyncio."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("static")

    def create_reader(self, context: Any) -> Any:
        return TickReader()


class TickReader(AsyncSourceReader[int]):
    """Gives a few numbers, each after a moment."""

    def __init__(self) -> None:
        self.given = 0

    async def poll(self, max_records: int) -> Any:
        await asyncio.sleep(0.001)
        if self.given >= 50:
            return END
        self.given += 1
        return SourceBatch([self.given], "s", self.given)

    def add_splits(self, splits: Sequence[Split]) -> None: ...

    def no_more_splits(self) -> None: ...

    def pause_splits(self, split_ids: Sequence[str]) -> None: ...

    def resume_splits(self, split_ids: Sequence[str]) -> None: ...

    def snapshot(self) -> list[Split]:
        return []

    def close(self) -> None:
        print("reader closed")


def test_a_reader_on_asyncio(slot: SlotProcess) -> None:
    (task,) = slot.deploy([line(spec(OperatorKind.SOURCE, Ticks()), spec(OperatorKind.COLLECT))])
    assert slot.collect_all(task) == list(range(1, 51))
    slot.wait_for_state("FINISHED", task)
    assert slot.printed() == "reader closed\n"
    assert slot.release() == "OUTCOME RETURNED"


class Slow(SinkFunction[Any]):
    """Slower than its source."""

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        time.sleep(0.0005)


def test_a_slow_sink_slows_the_source_and_the_times_show_it(slot: SlotProcess) -> None:
    source, sink = slot.deploy(
        [
            line(
                numbers(0, 0),
                spec(OperatorKind.MAP, lambda n: "x" * 1000),
                output=OutputSpec(1, 0, PartitionerKind.REBALANCE),
            ),
            line(spec(OperatorKind.SINK_FUNCTION, Slow())),
        ],
        [(0, 1, "REBALANCE")],
        config={"firesteel.exchange.channel-window": "64kb"},
    )
    slot.give_splits([split(0, 10_000_000)])

    first = slot.wait_for("metrics")[0]["tasks"]
    began = time.monotonic()
    slot.wait_for("metrics")
    later = slot.wait_for("metrics")[0]["tasks"]
    passed = (time.monotonic() - began) * 1000
    assert later[source]["backPressuredTimeMs"] > first[source]["backPressuredTimeMs"] + 500
    assert later[sink]["busyTimeMs"] > first[sink]["busyTimeMs"] + 500
    assert later[source]["numRecordsOut"] - later[sink]["numRecordsIn"] < 1000
    total = [sum(m[source][k] for k in ("busyTimeMs", "idleTimeMs", "backPressuredTimeMs")) for m in (first, later)]
    assert 1800 < total[1] - total[0] < passed + 2000
    slot.send({"type": "cancel", "execution_ids": None, "interval_ms": 1000})
    slot.wait_for_state("CANCELED", source)
    slot.wait_for_state("CANCELED", sink)
    assert slot.release() == "OUTCOME RETURNED"


def test_print_holds_the_job_back_when_nobody_reads(slot: SlotProcess) -> None:
    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, lambda n: "x" * 1000), spec(OperatorKind.PRINT))])
    slot.give_splits([split(0, 30_000)])
    time.sleep(2)  # nobody reads the control socket meanwhile
    with open(f"/proc/{slot.process.pid}/status", encoding="utf-8") as status:
        peak = next(int(text.split()[1]) for text in status if text.startswith("VmHWM"))
    assert peak < 250_000, "kB"
    slot.wait_for_state("FINISHED", task)
    assert len(slot.printed()) == 30_000 * 1001
    assert slot.release() == "OUTCOME RETURNED"


def test_printing_in_a_function_holds_it_back_and_can_be_cancelled(slot: SlotProcess) -> None:
    def shout(value: int) -> int:
        while True:
            print("y" * 10_000)

    (task,) = slot.deploy([line(numbers(0, 0), spec(OperatorKind.MAP, shout), spec(OperatorKind.PRINT))])
    slot.give_splits([split(0, 1)])
    time.sleep(1)
    slot.send({"type": "cancel", "execution_ids": None, "interval_ms": 300})
    slot.wait_for_state("CANCELED", task)
    assert slot.release() == "OUTCOME RETURNED"
