"""Bounded jobs: batch mode beside streaming mode, Spark SQL, and PySpark's own ways to run Python.

    python -m benchmarks.batch_bench                                  # w4 of 200 MB, w2 and w3 of 10 k and 1 M keys
    python -m benchmarks.batch_bench w2 --keys 1000000 --count 20000000 --runs 3
    python -m benchmarks.batch_bench w4 --text-mb 2000 --systems batch-columns spark-sql
    python -m benchmarks.batch_bench w4 w2 --stages --systems batch-functions batch-columns
    python -m benchmarks.batch_bench sort --count 20000000 --keys 1000000 --memory 520m   # a fifth of the records

Each run is a process of its own, systems in turn. It runs the job once over little data, so that everything is loaded
and, for ours, a cluster stands; then the job that counts, of which the time from ``execute()`` to its end is taken.
What all give is checked: the number of keys, or of keys and windows, and the sum of their counts; streaming mode gives
a result for each record (w4, w2). ``other`` is what processes outside the tree used meanwhile, in cores: above 0.25 the
run is noisy. ``--stages`` tells of each stage of ours when it began, counted from the call of ``execute``, how long it
took and what went in and out, as REST has it.

``sort`` brings all records of a key together, each with a text of 100 characters, and combines nothing before: by a
keyed function, by ``groupByKey``, by ``collect_list``. ``--memory`` is the heap of Spark's own JVM, and what PySpark's
two workers may hold together before they spill; ours have their default settings.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks import events, measure

OURS: Final = ("batch-functions", "batch-columns", "streaming-functions", "streaming-columns")
SPARKS: Final = ("spark-sql", "spark-rdd", "spark-arrow")
SORTING: Final = ("batch-functions", "streaming-functions", "spark-sql", "spark-rdd")
ROOT: Final = Path(__file__).parents[1]
"""Workers of PySpark find this package there."""
WINDOW_MS: Final = 10_000
_FEW: Final = 20_000
_PARTS: Final = 8
Result = tuple[int, int]
"""Rows, and the sum of their counts."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_bench")
    parser.add_argument("what", nargs="*", default=["w4", "w2", "w3"], metavar="WORKLOAD", help="w4, w2, w3, sort")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--text-mb", type=int, default=200, help="w4: size of the text, in 10**6 bytes")
    parser.add_argument("--count", type=int, default=10_000_000, help="w2, w3: events")
    parser.add_argument("--keys", type=int, action="append", help="w2, w3: different keys; may stand several times")
    parser.add_argument("--systems", nargs="+", choices=[*OURS, *SPARKS], default=[*OURS, *SPARKS])
    parser.add_argument("--memory", default="2g", help="heap of Spark's own JVM")
    parser.add_argument("--stages", action="store_true", help="of batch mode: what each of its stages cost")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--text", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.what) - {"w2", "w3", "w4", "sort"}:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}; there are w4, w2, w3 and sort")
    if given.child:
        return child(given)
    if "spark-arrow" in given.systems and importlib.util.find_spec("pandas") is None:
        print("spark-arrow is left out: PySpark's mapInArrow needs pandas 2.2 or newer, which is not installed here")
        given.systems = [system for system in given.systems if system != "spark-arrow"]
    with tempfile.TemporaryDirectory() as folder:
        wrong = 0
        for what in given.what:
            text = Path(folder) / "text"
            if what == "w4":
                write_text(text, given.text_mb * 10**6)
            for keys in (given.keys or [10_000, 1_000_000]) if what != "w4" else [0]:
                wrong += compare(given, what, keys, text)
    return 1 if wrong else 0


def compare(given: argparse.Namespace, what: str, keys: int, text: Path) -> int:
    """Run all systems in turn; returns how many gave wrong results."""
    size = text.stat().st_size if what == "w4" else given.count
    print(f"{what}: " + (f"{size / 1e6:.0f} MB of text" if what == "w4" else f"{size:,} events, {keys:,} keys"))
    expected = expected_of(what, size, keys, text)
    systems = [system for system in given.systems if what != "sort" or system in SORTING]
    found: dict[str, list[measure.Watched]] = {system: [] for system in systems}
    seconds: dict[str, list[float]] = {system: [] for system in systems}
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    wrong = 0
    for _ in range(given.runs):
        for system in systems:
            command = [sys.executable, "-m", "benchmarks.batch_bench", what, "--child", system, "--text", str(text)]
            command += ["--keys", str(keys), "--count", str(given.count), "--memory", given.memory]
            command += ["--stages"] if given.stages else []
            watched = measure.run(
                [*command, "--parallelism", str(given.parallelism)], timeout=1800.0, environment=paths
            )
            lines = [line[7:] for _, line in watched.output if line.startswith("RESULT ")]
            for line in [line[6:] for _, line in watched.output if line.startswith("STAGE ")]:
                print(f"  {system:20} {line}")
            result = json.loads(lines[-1]) if lines else {}
            right = result.get("result") == list(expected[system.startswith("streaming")])
            if watched.code or not right:
                wrong += 1
                print(f"  {system}: WRONG {result}, code {watched.code}; expected {expected}")
                continue
            found[system].append(watched)
            seconds[system].append(result["seconds"])
    records = expected[False][1]
    for system, runs in found.items():
        if runs:
            took = statistics.median(seconds[system])
            memory, other = max(run.peak_pss_mb for run in runs), max(run.other_cores for run in runs)
            rate = f"{records / took / 1e6:8.3f} M/s"
            spread = f"{min(seconds[system]):.2f}-{max(seconds[system]):.2f} s"
            print(f"  {system:20} {rate}   {took:7.2f} s ({spread})   peak {memory:5.0f} MB   other {other:.2f}")
    return wrong


def write_text(path: Path, size: int) -> None:
    """Words of which few are frequent and many are rare, twelve in a line."""
    rng = np.random.default_rng(11)
    words = np.array([f"w{number:x}" for number in range(200_000)])
    with path.open("w") as file:
        while file.tell() < size:
            chosen = words[np.minimum(rng.zipf(1.3, 120_000) - 1, len(words) - 1)]
            file.write("\n".join(" ".join(line) for line in chosen.reshape(-1, 12)))
            file.write("\n")


def expected_of(what: str, size: int, keys: int, text: Path) -> tuple[Result, Result]:
    """What batch systems give, and streaming mode."""
    if what == "w4":
        counts: dict[str, int] = {}
        with text.open() as file:
            for line in file:
                for word in line.split():
                    counts[word] = counts.get(word, 0) + 1
        per_key = np.fromiter(counts.values(), np.int64)
    else:
        auction, _, _, _, ts = events.columns(0, size, keys)
        _, per_key = np.unique(ts // WINDOW_MS * keys + auction if what == "w3" else auction, return_counts=True)
    final = len(per_key), int(per_key.sum())
    if what in ("w3", "sort"):
        return final, final
    return final, (int(per_key.sum()), int((per_key * (per_key + 1) // 2).sum()))


def child(given: argparse.Namespace) -> int:
    """One system, one workload: a run over little, then the one that counts."""
    job = spark_job(given) if given.child in SPARKS else own_job(given)
    what, keys = given.what[0], (given.keys or [0])[0]
    with tempfile.TemporaryDirectory() as folder:
        little = Path(folder) / "little"
        little.write_text("to be or not to be\n" * 1000)
        job(what, min(_FEW, given.count), keys, str(little))
        began = time.monotonic()
        result = job(what, given.count, keys, given.text)
        seconds = time.monotonic() - began
    print("RESULT " + json.dumps({"seconds": seconds, "result": result}), flush=True)
    return 0


Job = Callable[[str, int, int, str], Result]


def own_job(given: argparse.Namespace) -> Job:
    """Batch or streaming mode, by functions or by columns."""
    from benchmarks import column_programs, programs, window_programs

    from firesteel.common import Duration, Time, Types, WatermarkStrategy
    from firesteel.datastream import StreamExecutionEnvironment
    from firesteel.datastream.connectors.data_generator import DataGeneratorSource
    from firesteel.datastream.connectors.file_system import FileSource, StreamFormat
    from firesteel.datastream.window import TumblingEventTimeWindows
    from firesteel.expressions import col, count, max_

    mode, _, form = given.child.partition("-")
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(given.parallelism)
    env._configuration.set_string("execution.runtime-mode", mode.upper())
    none = WatermarkStrategy.no_watermarks()
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])

    def add(one: Any, other: Any) -> Any:
        return one[0], one[1] + other[1]

    add.combinable = True  # type: ignore[attr-defined] # as reduceByKey takes for granted

    def build(what: str, total: int, keys: int, text: str, out: str) -> None:
        bids: Any
        windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
        sink: Any = column_programs.CountingColumns(out, sums=True)
        if what == "w4":
            lines_of = StreamFormat.text_line_format(column="line" if form == "columns" else None)
            lines = env.from_source(FileSource.for_record_stream_format(lines_of, text).build(), none, "Lines")
            if form == "columns":
                words = lines.map_batches(column_programs.Words(out), column_programs.TEXT)
                counted = words.key_by("f0").aggregate(count().alias("n"))
            else:
                ones = lines.flat_map(programs.SplitLine(out)).map(lambda word: (word, 1), pair)
                counted = ones.key_by(lambda p: p[0]).reduce(add)
        elif form == "columns":
            made = DataGeneratorSource.of_batches(column_programs.Events(out, keys), column_programs.BID, total)
            timed = late.with_timestamp_assigner(col("ts")) if what == "w3" else none
            bids = env.from_source(made, timed, "Events").key_by("auction")
            if what == "w3":
                counted = bids.window(windows).aggregate(count(), max_("price"))
                sink = window_programs.WindowSink(out)
            else:
                counted = bids.aggregate(count().alias("n"))
        else:
            timed = late.with_timestamp_assigner(window_programs.EventTime()) if what == "w3" else none
            bids = env.from_source(programs.EventSource(total, out, keys=keys), timed, "Events")
            if what == "w3":
                aggregate = window_programs.CountAndMax(), window_programs.WithWindow()
                counted = bids.key_by(lambda bid: bid[0]).window(windows).aggregate(*aggregate)
                sink = window_programs.WindowSink(out)
            elif what == "sort":
                long, text_of = Types.LONG(), Types.TUPLE([Types.LONG(), Types.STRING()])
                texts = bids.map(lambda bid: (bid[0], f"{bid[1]:0100}"), text_of)
                counted = texts.key_by(lambda p: p[0]).process(programs.CountAtTheEnd(), Types.TUPLE([long, long]))
            else:
                ones = bids.map(lambda bid: (bid[0], 1), Types.TUPLE([Types.LONG(), Types.LONG()]))
                counted = ones.key_by(lambda p: p[0]).reduce(add)
        counted.sink_to(sink)

    def job(what: str, total: int, keys: int, text: str) -> Result:
        with tempfile.TemporaryDirectory() as out:
            build(what, total, keys, text, out)
            called = time.time()
            running = env.execute_async(what)
            running.get_job_execution_result().result()
            if given.stages and mode == "batch" and total == given.count:
                tell_stages(running, called)
            notes = [json.loads(line) for path in Path(out).glob("*.jsonl") for line in path.read_text().splitlines()]
        rows = [one for one in notes if "rows" in one]
        return sum(one["rows"] for one in rows), sum(one["sum"] for one in rows)

    return job


def tell_stages(job: Any, called: float) -> None:
    """A line for each stage: from when the first of its tasks ran in Spark, until all had ended."""
    for vertex in job.get_job_details().result()["vertices"]:
        path = f"/jobs/{job.get_job_id()}/vertices/{vertex['id']}/subtasktimes"
        times = [task["timestamps"] for task in job._loop.start(job._rest.get(path)).result()["subtasks"]]
        began, ended = min(one["RUNNING"] for one in times) / 1000, max(one["FINISHED"] for one in times) / 1000
        metrics = vertex["metrics"]
        records = f"{metrics['read-records']:,} -> {metrics['write-records']:,} records"
        size = f"{metrics['read-bytes'] / 1e6:.1f} -> {metrics['write-bytes'] / 1e6:.1f} MB"
        took = f"begins at {began - called:.2f} s, takes {ended - began:.2f} s"
        print(f"STAGE {vertex['name'][:60]:60} {vertex['parallelism']} subtasks, {took}, {records}, {size}", flush=True)


def _mb(size: str) -> int:
    return int(size[:-1]) * {"m": 1, "g": 1024}[size[-1].lower()]


def spark_job(given: argparse.Namespace) -> Job:
    """Spark SQL, functions of RDDs, or functions of Arrow batches, in a local Spark of its own."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f

    os.environ["PYSPARK_PYTHON"] = sys.executable  # else it is the first python3 of the PATH
    builder: Any = SparkSession.builder
    for name, value in {
        "spark.master": f"local[{given.parallelism}]",
        "spark.driver.memory": given.memory,
        "spark.python.worker.memory": f"{_mb(given.memory) // 2}m" if given.what[0] == "sort" else "512m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(_PARTS),
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()

    def ranges(total: int) -> list[tuple[int, int]]:
        ends = [total * part // (_PARTS * 4) for part in range(_PARTS * 4 + 1)]
        return list(itertools.pairwise(ends))

    def of_rdd(what: str, total: int, keys: int, text: str) -> Result:
        context = spark.sparkContext
        pairs: Any
        if what == "w4":
            pairs = context.textFile(text, _PARTS).flatMap(str.split).map(lambda word: (word, 1))
        else:
            made = context.parallelize(ranges(total), _PARTS).flatMap(lambda r: events.tuples(r[0], r[1], keys))
            if what == "w2":
                pairs = made.map(lambda bid: (bid[0], 1))
            elif what == "sort":
                grouped = made.map(lambda bid: (bid[0], f"{bid[1]:0100}")).groupByKey(_PARTS)
                return added(grouped.map(lambda kv: (1, sum(1 for _ in kv[1]))))
            else:
                both = made.map(lambda bid: ((bid[0], bid[4] // WINDOW_MS), (1, bid[2])))
                largest = both.reduceByKey(lambda a, b: (a[0] + b[0], max(a[1], b[1])), _PARTS)
                return added(largest.map(lambda kv: (1, kv[1][0])))
        return added(pairs.reduceByKey(operator.add, _PARTS).map(lambda kv: (1, kv[1])))

    def added(ones: Any) -> Result:
        rows, total = ones.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]))
        return rows, total

    def words_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = pc.list_flatten(pc.ascii_split_whitespace(batch.column(0)))
            yield pa.RecordBatch.from_arrays([words.filter(pc.not_equal(words, ""))], ["key"])

    def frame(what: str, total: int, keys: int, text: str) -> DataFrame:
        python = given.child == "spark-arrow"
        if what == "w4":
            lines = spark.read.text(text)
            if python:
                return lines.mapInArrow(words_of, "key string")
            return lines.select(f.explode(f.split("value", r"\s+")).alias("key")).where("key != ''")
        if python:

            def bids_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        start, stop = ranges(total)[number]
                        yield events.batch(start, stop, ("auction", "price", "ts"), keys)

            made = spark.range(0, len(ranges(total)), 1, _PARTS).mapInArrow(
                bids_of, "auction long, price long, ts long"
            )
        else:
            h = (f.col("id") * 2654435761) % 4294967296
            made = spark.range(0, total, 1, _PARTS).select(
                (f.floor(h / 256) % keys).alias("auction"),
                (f.floor(h / 16) % 100003).alias("bidder"),
                (f.lit(1) + f.floor(h / 64) % 9973).alias("price"),
                (f.lit(events.BASE_MS) + f.floor(f.col("id") / 10)).alias("ts"),
            )
        if what == "w2":
            return made.select(f.col("auction").alias("key"))
        if what == "sort":
            return made.select(f.col("auction").alias("key"), f.lpad("bidder", 100, "0").alias("text"))
        window = f.floor(f.col("ts") / WINDOW_MS).alias("window")
        return made.select(f.struct("auction", window).alias("key"), "price")

    def of_frame(what: str, total: int, keys: int, text: str) -> Result:
        if what == "sort":
            lists = frame(what, total, keys, text).groupBy("key").agg(f.collect_list("text").alias("texts"))
            (row,) = lists.agg(f.count(f.lit(1)), f.sum(f.size("texts"))).collect()
            return int(row[0]), int(row[1])
        more = [f.max("price").alias("largest")] if what == "w3" else []
        counted = frame(what, total, keys, text).groupBy("key").agg(f.count(f.lit(1)).alias("n"), *more)
        if more:  # else Spark leaves it out
            counted = counted.where("largest >= 0")
        (row,) = counted.agg(f.count(f.lit(1)), f.sum("n")).collect()
        return int(row[0]), int(row[1])

    return of_rdd if given.child == "spark-rdd" else of_frame


if __name__ == "__main__":
    sys.exit(main())
