"""A million keys with value state and a timer each: insert, fire, clear. ``python -m benchmarks.timer_bench``.

Prints bytes for each key and processor time for each step, and, to show that the time grows as n log n at worst, the
time for each key at several sizes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Types
from firesteel.datastream import KeyedProcessFunction, RuntimeContext
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskInfo
from firesteel.runtime.operator_base.timed import TIMER_DONE, TimedTransform
from firesteel.runtime.operators import create_operator
from firesteel.testing import ManualClock

_BATCH = 1000


class Once(KeyedProcessFunction[Any, Any, Any]):
    """Keeps a number for each key, and clears it when the key's timer fires."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self._number.update(value[1])
        ctx.timer_service().register_event_time_timer(value[1])
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        number = self._number.value()
        self._number.clear()
        return ((ctx.get_current_key(), number),)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(keys: int) -> dict[str, float]:
    """One operator, all steps."""
    order = list(range(keys))
    random.Random(7).shuffle(order)
    stamp, clock = Stamp(), ManualClock()
    spec = OperatorSpec("a" * 32, "TIMERS", OperatorKind.KEYED_PROCESS, Once(), (lambda value: value[0],))
    operator: Any = create_operator(spec)
    assert isinstance(operator, TimedTransform)
    operator.open(OperatorContext(TaskInfo("1" * 32, "job", "v", "TIMERS", 0, 1, 128, 0), clock, stamp))

    def records(some: list[int]) -> Iterator[Any]:
        for number in some:
            stamp.value = number
            yield number + keys, 1_700_000_000_000 + number  # a key object of its own

    gc.collect()
    before, began = _resident(), time.process_time()
    for start in range(0, keys, _BATCH):
        for _ in operator.apply(records(order[start : start + _BATCH]), 0):
            raise AssertionError("nothing comes out before a timer fires")
    inserted = time.process_time()
    used = _resident() - before
    fired = sum(result is not TIMER_DONE for result in operator.advance_watermark(2**63 - 1))
    ended = time.process_time()
    assert fired == keys
    assert not operator.keyed.keys()
    return {
        "keys": keys,
        "bytes_a_key": round(used / keys),
        "insert_us": round((inserted - began) / keys * 1e6, 2),
        "fire_and_clear_us": round((ended - inserted) / keys * 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[62_500, 250_000, 1_000_000])
    for keys in parser.parse_args().keys:
        child = os.fork()  # so that memory is measured in a process of its own
        if not child:
            print(json.dumps(run(keys)), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"the run with {keys} keys failed")


if __name__ == "__main__":
    main()
