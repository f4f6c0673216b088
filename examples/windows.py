"""Windows of each kind over the functions that real source files define, by default those of the standard library.

A definition is an event, the number of its line the time (one line is a second), its file the key. The program counts
definitions in every 200 lines (tumbling), in every 200 lines anew after each 100 (sliding), in every five definitions
(count), and after each tenth definition so far (a global window with a trigger), and says which of them is the longest
name of its window.

Run it with ``python examples/windows.py [FILE ...]``.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
from firesteel.datastream import AggregateFunction, ProcessWindowFunction, StreamExecutionEnvironment
from firesteel.datastream.window import (
    CountTrigger,
    GlobalWindow,
    GlobalWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

DEFINITION = re.compile(r"\s*def (\w+)")
Definition = tuple[str, int, str]
Found = tuple[str, str, int]


class LineNumber(TimestampAssigner):
    """The number of the line, as seconds."""

    def extract_timestamp(self, value: Definition, record_timestamp: int) -> int:
        return value[1] * 1000


class CountAndLongest(AggregateFunction[Definition, tuple[int, str], tuple[int, str]]):
    """Count and longest name; what was added is not kept."""

    def create_accumulator(self) -> tuple[int, str]:
        return 0, ""

    def add(self, value: Definition, accumulator: tuple[int, str]) -> tuple[int, str]:
        count, longest = accumulator
        return count + 1, max(longest, value[2], key=len)

    def get_result(self, accumulator: tuple[int, str]) -> tuple[int, str]:
        return accumulator

    def merge(self, acc_a: tuple[int, str], acc_b: tuple[int, str]) -> tuple[int, str]:
        return acc_a[0] + acc_b[0], max(acc_a[1], acc_b[1], key=len)


class WithPlace(ProcessWindowFunction[tuple[int, str], Found, str, TimeWindow]):
    """Adds file and lines to the result of the aggregate function."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[int, str]]
    ) -> Iterator[Found]:
        window = context.window()
        for count, longest in elements:
            yield f"{key}:{window.start // 1000}-{window.end // 1000 - 1}", longest, count


class SoFar(ProcessWindowFunction[Definition, Found, str, GlobalWindow]):
    """All definitions until now: nothing purges the window."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[GlobalWindow], elements: Iterable[Definition]
    ) -> Iterator[Found]:
        names = [name for _, _, name in elements]
        yield f"{key} until its definition {len(names)}", max(names, key=len), len(names)


def definitions(paths: Iterable[Path]) -> Iterator[Definition]:
    """Of all files, each in the order of its lines."""
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := DEFINITION.match(line):
                yield path.name, number, match[1]


def main(paths: list[Path]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(LineNumber())
    by_file = (
        env.from_collection(list(definitions(paths))).assign_timestamps_and_watermarks(in_order).key_by(lambda d: d[0])
    )
    tumbling = by_file.window(TumblingEventTimeWindows.of(Time.seconds(200)))
    sliding = by_file.window(SlidingEventTimeWindows.of(Time.seconds(200), Time.seconds(100)))
    so_far = by_file.window(GlobalWindows.create()).trigger(CountTrigger.of(10))
    results = [
        tumbling.aggregate(CountAndLongest(), WithPlace()).map(lambda found: ("tumbling", found)),
        sliding.aggregate(CountAndLongest(), WithPlace()).map(lambda found: ("sliding", found)),
        by_file.count_window(5).reduce(lambda a, b: max(a, b, key=lambda d: len(d[2]))).map(lambda d: ("count", d)),
        so_far.process(SoFar()).map(lambda found: ("global", found)),
    ]
    with results[0].union(*results[1:]).execute_and_collect("Windows") as found:
        counts = Counter(kind for kind, _ in found)
    for kind, count in sorted(counts.items()):
        print(f"{kind}: {count} results")


if __name__ == "__main__":
    library = Path(sysconfig.get_paths()["stdlib"])
    main([Path(name) for name in sys.argv[1:]] or [library / name for name in ("argparse.py", "inspect.py", "ast.py")])
