"""Finds blocks of imports in real source files: by default those of the Python standard library's packages.

A line is an event, its number the time (one line is a second), the file its key. Imports that stand no more than three
lines apart are one session. Lines come a little out of order, as events do that travel: what is later than the
watermark allows goes to a side output.

Run it with ``python examples/sessions.py [FILE OR FOLDER ...]``.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from firesteel.common import Duration, Time, Types, WatermarkStrategy
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from firesteel.datastream.window import EventTimeSessionWindows, TimeWindow

IMPORT = re.compile(r"(?:import|from) +[\w.]+")
LATE: OutputTag[Any] = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
Line = tuple[str, int, str]


class LineNumber(TimestampAssigner):
    """The number of the line, as seconds."""

    def extract_timestamp(self, value: Line, record_timestamp: int) -> int:
        return value[1] * 1000


class Block(ProcessWindowFunction[Line, tuple[int, str], str, TimeWindow]):
    """One line for each block of at least five imports."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Line]
    ) -> Iterator[tuple[int, str]]:
        numbers = [number for _, number, _ in elements]
        if len(numbers) >= 5:
            yield len(numbers), f"{key}:{min(numbers)}-{max(numbers)}"


def source_files(paths: list[str]) -> list[Path]:
    """All Python files under these paths; without any those of some packages of the standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    roots = [Path(path) for path in paths] or [library / name for name in ("asyncio", "email", "json", "unittest")]
    return [file for root in roots for file in (sorted(root.rglob("*.py")) if root.is_dir() else [root])]


def lines_of(files: list[Path]) -> Iterator[Line]:
    """Lines of all files by number, each fifth line four places late: time goes on for all files together."""
    texts = {file.as_posix(): file.read_text(encoding="utf-8", errors="replace").splitlines() for file in files}
    for number in range(1, max(map(len, texts.values()), default=0) + 5):
        for name, lines in texts.items():
            if number % 5 and number <= len(lines):
                yield name, number, lines[number - 1]
            if number > 4 and (number - 4) % 5 == 0 and number - 4 <= len(lines):
                yield name, number - 4, lines[number - 5]


def main(paths: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    slack = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    lines = env.from_collection(list(lines_of(source_files(paths))))
    blocks = (
        lines.assign_timestamps_and_watermarks(slack.with_timestamp_assigner(LineNumber()))
        .filter(lambda line: IMPORT.match(line[2]) is not None)
        .key_by(lambda line: line[0])
        .window(EventTimeSessionWindows.with_gap(Time.seconds(3)))
        .side_output_late_data(LATE)
        .process(Block())
    )
    late = blocks.get_side_output(LATE).map(lambda line: (0, f"late: {line[0]}:{line[1]}"))
    with blocks.union(late).execute_and_collect("Blocks of imports") as results:
        found = sorted(results, reverse=True)
    for count, place in found[:10]:
        print(f"{count:>4}  {place}")
    print(f"{sum(count > 0 for count, _ in found)} blocks, {sum(count == 0 for count, _ in found)} late lines")


if __name__ == "__main__":
    main(sys.argv[1:])
