"""Counts words of real text: by default those of the Python standard library's own source files.

Run it with ``python examples/word_count.py [FILE OR FOLDER ...]``, or on a cluster with ``firesteel run``.
"""

from __future__ import annotations

import heapq
import re
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from firesteel.common import JobClient, Types, WatermarkStrategy
from firesteel.datastream import RuntimeContext, SinkFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSource, StreamFormat

WORD = re.compile(r"[A-Za-z_]+")


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in WORD.findall(line):
        yield word.lower(), 1


class TopTen(SinkFunction[tuple[str, int]]):
    """Keeps the latest count of every word; at the end it prints the ten most frequent words."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts: dict[str, int] = {}

    def invoke(self, value: tuple[str, int], context: object) -> None:
        self.counts[value[0]] = value[1]

    def close(self) -> None:
        for word, count in heapq.nlargest(10, self.counts.items(), key=lambda item: item[1]):
            print(f"{count:>12,}  {word}")


def standard_library() -> list[str]:
    """Paths of the standard library's source files, those of installed packages left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [str(path) for path in sorted(root.rglob("*.py")) if not path.parts[len(root.parts)].endswith("-packages")]


def main(paths: list[str]) -> None:
    began = time.monotonic()
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "Lines", Types.STRING())
    counts = (
        lines.flat_map(words)
        .name("Words")
        .key_by(lambda item: item[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
        .name("Count")
    )
    counts.add_sink(TopTen()).set_parallelism(1).name("Top ten")
    job = env.execute_async("Word count")
    watch(job, began)


def watch(job: JobClient, began: float) -> None:
    """Print the progress of the job, as its REST API tells it, until the job has ended."""
    print(f"REST API: {job.get_web_interface_url()}/jobs/{job.get_job_id()}", flush=True)
    result = job.get_job_execution_result()
    started = shown = 0.0
    counted, ended = 0, False
    while not ended:
        time.sleep(0.05)
        ended = result.done()
        vertices = job.get_job_details().result()["vertices"]
        counted = sum(v["metrics"]["read-records"] for v in vertices if v["name"].startswith("Count"))
        now = time.monotonic()
        if counted and not started:
            started = shown = now
            print(f"first words counted {now - began:.1f} s after the start", flush=True)
        elif counted and now - shown >= 1:
            shown = now
            print(f"{now - began:5.1f} s  {counted:>12,} words", flush=True)
    result.result()
    seconds = time.monotonic() - (started or began)
    rate = f": {counted / seconds:,.0f} words/s" if seconds >= 1 else ""  # else it says little
    print(f"{counted:,} words in {seconds:.1f} s{rate}")


if __name__ == "__main__":
    main(sys.argv[1:] or standard_library())
