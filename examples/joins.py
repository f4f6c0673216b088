"""Joins two streams made of real source files: the functions that are defined, and the calls of them.

A line is a second, a name the key. Three questions, by default about the standard library's ``argparse``:

* which calls stand in the same hundred lines as the definition (window join);
* how often a name is defined and called in each hundred lines, also if one of the two is missing (co-group);
* which calls follow their definition within ten lines (interval join).

Run it with ``python examples/joins.py [FILE]``.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from firesteel.common import Time, TimestampAssigner, WatermarkStrategy
from firesteel.datastream import ProcessJoinFunction, StreamExecutionEnvironment
from firesteel.datastream.window import TumblingEventTimeWindows

DEFINITION = re.compile(r"\bdef (\w+)")
CALL = re.compile(r"(?<!def )\b(\w+)\(")
Mention = tuple[str, int]


class LineNumber(TimestampAssigner):
    """The number of the line, as seconds."""

    def extract_timestamp(self, value: Mention, record_timestamp: int) -> int:
        return value[1] * 1000


class SoonCalled(ProcessJoinFunction[Mention, Mention, str]):
    """A definition and one of the calls behind it."""

    def process_element(self, left: Mention, right: Mention, ctx: ProcessJoinFunction.Context) -> Iterator[str]:
        yield f"{left[0]} is defined in line {left[1]} and called in line {right[1]}"


def counted(definitions: Iterable[Mention], calls: Iterable[Mention]) -> list[tuple[str, int, int]]:
    """How many there are of each in a window."""
    defined, called = list(definitions), list(calls)
    return [((defined or called)[0][0], len(defined), len(called))]


def mentions(pattern: re.Pattern[str], text: str) -> list[Mention]:
    """Names and lines."""
    lines = enumerate(text.splitlines(), 1)
    return [(name, number) for number, line in lines for name in pattern.findall(line)]


def main(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    env = StreamExecutionEnvironment.get_execution_environment()
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(LineNumber())
    definitions = env.from_collection(mentions(DEFINITION, text)).assign_timestamps_and_watermarks(in_order)
    calls = env.from_collection(mentions(CALL, text)).assign_timestamps_and_watermarks(in_order)
    hundred = TumblingEventTimeWindows.of(Time.seconds(100))

    def name(mention: Mention) -> str:
        return mention[0]

    joined = definitions.join(calls).where(name).equal_to(name).window(hundred).apply(lambda d, c: (d[0], d[1], c[1]))
    groups = definitions.co_group(calls).where(name).equal_to(name).window(hundred).apply(counted)
    soon = (
        definitions.key_by(name)
        .interval_join(calls.key_by(name))
        .between(Time.seconds(1), Time.seconds(10))
        .process(SoonCalled())
    )
    together = joined.map(lambda found: ("join", found)).union(
        groups.map(lambda found: ("co-group", found)), soon.map(lambda found: ("interval join", found))
    )
    with together.execute_and_collect("Joins") as results:
        found = list(results)
    print(f"{sum(kind == 'join' for kind, _ in found)} calls within the hundred lines of their definition")
    alone = sum(kind == "co-group" and 0 in value[1:] for kind, value in found)
    print(f"{alone} times a name is only defined, or only called, in a hundred lines")
    for line in sorted(value for kind, value in found if kind == "interval join")[:5]:
        print(line)


if __name__ == "__main__":
    library = Path(sysconfig.get_paths()["stdlib"])
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else library / "argparse.py")
