"""What a record costs windows of the general engine, and of the one that is made for its kind of windows.

``python -m benchmarks.window_engines_bench [--records N] [--keys N] [--runs N]``: one operator sums fields by key, with
the watermark a second behind. Both engines do the same work in turn in one process; processor time of the operator's
thread in microseconds for each record, medians, and their ratio: what it would cost to have the general engine alone.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

from firesteel.core.clock import SystemClock
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskInfo
from firesteel.runtime.operators import create_operator
from firesteel.windowing.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows, WindowAssigner
from firesteel.windowing.session_assigners import EventTimeSessionWindows
from firesteel.windowing.spec import WindowGathering, WindowSpec

BATCH: Final = 1000
WINDOWS: Final[dict[str, tuple[WindowAssigner[Any, Any], OperatorKind]]] = {
    "tumbling, 10 s": (TumblingEventTimeWindows(10_000), OperatorKind.ALIGNED_WINDOW),
    "sliding, 10 s every 2 s": (SlidingEventTimeWindows(10_000, 2_000), OperatorKind.ALIGNED_WINDOW),
    "sessions, gap of 1 s": (EventTimeSessionWindows(1_000), OperatorKind.SESSION_WINDOW),
}


def cost(assigner: WindowAssigner[Any, Any], kind: OperatorKind, records: list[tuple[int, int, int]]) -> float:
    """Microseconds for each record (key, number, time)."""
    window = WindowSpec(
        assigner,
        assigner.get_default_trigger(None),  # event time, whatever the environment says
        gathering=WindowGathering.REDUCE,
        gather_function=lambda first, second: (first[0], first[1] + second[1], second[2]),
    )
    spec = OperatorSpec("a" * 32, "WINDOW", kind, window, (lambda record: record[0],))
    operator: Any = create_operator(spec)
    stamp = Stamp()
    operator.open(OperatorContext(TaskInfo("1" * 32, "job", "v_0_0", "WINDOW", 0, 1, 128, 0), SystemClock(), stamp))

    def stamped(batch: list[tuple[int, int, int]]) -> Iterator[Any]:
        for record in batch:
            stamp.value = record[2]
            yield record

    began = time.thread_time()
    for start in range(0, len(records), BATCH):
        batch = records[start : start + BATCH]
        for _ in operator.apply(stamped(batch), 0):
            pass
        for _ in operator.advance_watermark(batch[-1][2] - 1000):
            pass
    return (time.thread_time() - began) * 1e6 / len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3)
    parsed = parser.parse_args()
    rng = random.Random(1)
    records = [(rng.randrange(parsed.keys), 1, number // 2) for number in range(parsed.records)]
    print("windows                   general us/record   made for them   ratio", flush=True)
    for name, (assigner, kind) in WINDOWS.items():
        costs: dict[OperatorKind, list[float]] = {OperatorKind.WINDOW: [], kind: []}
        for _ in range(parsed.runs):
            for engine, measured in costs.items():
                measured.append(cost(assigner, engine, records))
        general, special = (statistics.median(measured) for measured in costs.values())
        print(f"{name:<24}  {general:17.2f}   {special:13.2f}   {general / special:5.2f}", flush=True)


if __name__ == "__main__":
    main()
