"""Two jobs in one program: one of a batch, one of a stream. Each prints how many results it has, and the largest."""

from __future__ import annotations

import os
import sys

from firesteel.datastream import RuntimeExecutionMode, StreamExecutionEnvironment


def largest(numbers: int, mode: RuntimeExecutionMode) -> tuple[int, int]:
    """Number of results and the largest one of a job that sums up numbers by their remainders."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode).set_parallelism(2)
    sums = (
        env.from_collection(list(range(numbers))).key_by(lambda x: x % 3).reduce(lambda number, other: number + other)
    )
    with sums.execute_and_collect() as results:
        values = list(results)
    return len(values), max(values)


if __name__ == "__main__":
    print("user", os.geteuid())
    for name in sys.argv[1:]:
        print(name, *largest(100, RuntimeExecutionMode[name]))
