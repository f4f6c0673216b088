"""What a record costs an interval join, with much or little kept of its key.

``python -m benchmarks.interval_join_bench [--backend ...] [--keys N] [--memory BYTES]``: one operator, records of both
sides in turn, a millisecond apart. ``still``: the watermark stands, as behind a silent split, and the cost of the last
2,000 records is shown for each number of records that are kept of a key. ``moving``: the watermark follows, so that
each key has a handful. Processor time of the operator's thread, in microseconds for each record; partners are counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

from firesteel.core.clock import SystemClock
from firesteel.functions.join_functions import ProcessJoinFunction
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators import create_operator
from firesteel.state.backend import load_state_backend

MEASURED: Final = 2_000


class Pair(ProcessJoinFunction[Any, Any, Any]):
    """Both times."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[1], right[1]


class Join:
    """One operator."""

    def __init__(self, backend: str, memory: int, folder: str, width: int) -> None:
        self.stamp = Stamp()
        extra: dict[str, Any] = {"lower": -width, "upper": 0, "late_tags": (None, None)}
        key: Any = lambda record: record[0]  # noqa: E731 # a key selector, as programs have it
        spec = OperatorSpec("a" * 32, "JOIN", OperatorKind.INTERVAL_JOIN, Pair(), (key, key), extra=extra)
        info = TaskInfo("1" * 32, "job", "v_0_0", "JOIN", 0, 1, 128, 0)
        operator: Any = create_operator(spec)
        self.operator = operator
        self.operator.use_backend(
            load_state_backend(backend), state_parameters(spec, info, SystemClock(), memory, folder)
        )
        self.operator.open(OperatorContext(info, SystemClock(), self.stamp))

    def run(self, keys: int, first: int, last: int, lag: int | None) -> tuple[float, int]:
        """Records of these times; microseconds for each, and partners of all."""
        pairs, began = 0, time.thread_time()
        for start in range(first, last, 100):
            for side in (0, 1):
                pairs += sum(
                    1 for _ in self.operator.apply(self._stamped(range(start, min(start + 100, last)), keys), side)
                )
            if lag is not None:
                for _ in self.operator.advance_watermark(start - lag):
                    pass
        return (time.thread_time() - began) * 1e6 / (2 * (last - first)), pairs

    def _stamped(self, times: range, keys: int) -> Iterator[Any]:
        for at in times:
            self.stamp.value = at
            yield at % keys, at, "something that is kept"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", nargs="*", default=["hashmap", "rocksdb"])
    parser.add_argument("--memory", type=int, default=16 << 20, help="of the slot, bytes")
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--kept", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--moving", type=int, nargs="*", default=[1_000], help="keys, where the watermark moves")
    given = parser.parse_args()
    print("watermark  backend   kept of a key  us/record  partners/record", flush=True)
    for backend in given.backend:
        for kept in given.kept:
            with tempfile.TemporaryDirectory() as folder:
                join = Join(backend, given.memory, folder, 4 * given.keys)
                times = kept * given.keys
                join.run(given.keys, 0, times, None)
                cost, pairs = join.run(given.keys, times, times + MEASURED, None)
                print(f"still      {backend:9} {kept:13} {cost:10.2f} {pairs / 2 / MEASURED:16.1f}", flush=True)
                join.operator.close()
        for keys in given.moving:
            with tempfile.TemporaryDirectory() as folder:
                join = Join(backend, given.memory, folder, 4 * keys)
                join.run(keys, 0, 8 * keys, 5 * keys)
                cost, pairs = join.run(keys, 8 * keys, 8 * keys + 50_000, 5 * keys)
                print(f"moving     {backend:9} {5:13} {cost:10.2f} {pairs / 100_000:16.1f}  ({keys} keys)", flush=True)
                join.operator.close()


if __name__ == "__main__":
    main()
