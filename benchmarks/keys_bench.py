"""Memory and time of a count for each of many keys, in columns. Run in a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common import Types
from firesteel.core.clock import SystemClock
from firesteel.expressions import count
from firesteel.expressions.keys import ColumnKey
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.operator_base.keyed_base import state_parameters
from firesteel.runtime.operators.column_aggregates import RunningAggregates
from firesteel.runtime.records.batch import Batch
from firesteel.state.heap import HeapStateBackend

BATCH = 32_768
Make = Callable[[npt.NDArray[np.int64]], pa.Array]
KINDS: dict[str, tuple[Make, bool]] = {
    "scattered": (lambda n: pa.array(n * np.int64(0x1E3779B97F4A7C15)), False),
    "dense": (pa.array, False),
    "text": (lambda n: pa.array(n).cast(pa.string()), True),
}
"""Keys of numbers 0, 1, 2, …; whether they are text."""


def run(keys: int) -> None:
    """Print a line of JSON for each kind of keys; of text a tenth as many."""
    for name, (make, text) in KINDS.items():
        found = _measure(make, keys // 10 if text else keys, text=text)
        print(json.dumps({f"{name}_{key}": value for key, value in found.items()}), flush=True)


def _operator(*, text: bool) -> RunningAggregates:
    given = Types.ROW_NAMED(["key"], [Types.STRING() if text else Types.LONG()])
    result = Types.ROW_NAMED(["key", "n"], [given.field_types[0], Types.LONG()])
    spec = OperatorSpec(
        "0" * 32,
        "Aggregate",
        OperatorKind.COLUMNS_AGGREGATE,
        (count().alias("n"),),
        key_selectors=(ColumnKey(["key"], [0]),),
        extra={"input_type": given, "result_type": result},
    )
    made = RunningAggregates(spec)
    info = TaskInfo("0" * 32, "bench", "v", "Aggregate", 0, 1, 128, 0, {})
    made.use_backend(HeapStateBackend(), state_parameters(made.spec, info, SystemClock()))
    return made


def _status(field: str) -> int:
    """Bytes of this process: VmRSS now, or VmHWM for the most since ``_forget_peak``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _measure(make: Make, keys: int, *, text: bool) -> dict[str, float]:
    def feed(operator: RunningAggregates, numbers: npt.NDArray[np.int64]) -> float:
        batch = pa.RecordBatch.from_arrays([make(numbers)], schema=operator.input.schema)
        before = time.thread_time()
        for _ in operator.apply_columns(iter([Batch(batch)])):
            pass
        return time.thread_time() - before

    warm = _operator(text=text)
    for start in range(0, 10 * BATCH, BATCH):
        feed(warm, np.arange(start, start + BATCH))
    warm.close()
    del warm
    base = _status("VmRSS")
    operator = _operator(text=text)
    adding, growing = [], 0.0
    for start in range(0, keys, BATCH):
        stop = min(start + BATCH, keys)
        _forget_peak()
        adding.append(feed(operator, np.arange(start, stop)))
        if stop > keys // 10:
            growing = max(growing, (_status("VmHWM") - base) / stop)
    random = np.random.default_rng(1)
    counting = [feed(operator, random.integers(0, keys, BATCH)) for _ in range(50)]
    rest = _status("VmRSS") - base
    assert operator.state.index.size == keys
    operator.close()
    return {
        "bytes_a_key_at_rest": round(rest / keys, 1),
        "bytes_a_key_while_growing": round(growing, 1),
        "ns_a_new_key": round(sum(adding) / keys * 1e9, 1),
        "longest_batch_ms": round(max(adding) * 1e3, 1),
        "ns_a_record": round(sum(counting) / len(counting) / BATCH * 1e9, 1),
    }
