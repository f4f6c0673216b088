"""TPC-H's queries in batch mode: both routes of SQL beside plain Spark SQL, over the same Parquet files.

    python -m benchmarks.tpch_bench                                     # a gigabyte, one run
    python -m benchmarks.tpch_bench --scale 0.1 --queries q1 q6 --runs 3
    python -m benchmarks.tpch_bench --runs 3 --save                     # keeps the total times in benchmarks/results

Each run is a process of its own, systems in turn. It computes all queries once over a hundredth of the data, so that
everything is loaded and, for ours, a cluster stands; then each query over all data, from the call to the last row of
its result. Rows are counted and compared between the systems. ``other`` is what processes outside the tree used
meanwhile, in cores: above 0.25 the run is noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import measure, record

SPARK_SQL: Final = "spark-sql"
SYSTEMS: Final = ("spark", "stages", SPARK_SQL)
"""Our routes by their names, and Spark SQL alone."""
ROOT: Final = Path(__file__).parents[1]
_LITTLE: Final = 100
"""The data that warm a system up are so many times smaller."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tpch_bench")
    parser.add_argument("--scale", type=float, default=1.0, help="1 has six million lines of orders")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--queries", nargs="+", metavar="Q", help="by default all")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--memory", default="2g", help="heap of Spark's own JVM")
    parser.add_argument("--save", action="store_true", help="keep the total times in benchmarks/results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments)
    from tests.tpch_tables import generated, write_files

    with tempfile.TemporaryDirectory() as folder:
        for name, scale in (("all", arguments.scale), ("little", arguments.scale / _LITTLE)):
            write_files(generated(scale), Path(folder, name), 2 * arguments.parallelism)
        return compare(arguments, Path(folder))


def queries(names: Sequence[str] | None) -> tuple[str, dict[str, str]]:
    """The declarations of the tables, and the queries by their names."""
    from tests.unit.sql.test_tpch_plans import read_queries

    texts = read_queries()
    declarations = texts.pop("tables")
    return declarations, {name: text for name, text in texts.items() if names is None or name in names}


def compare(arguments: argparse.Namespace, folder: Path) -> int:
    """Run all systems in turn; returns 1 if one has failed or has other rows."""
    results: dict[str, list[dict[str, Any]]] = {system: [] for system in arguments.systems}
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    _, texts = queries(arguments.queries)
    for _ in range(arguments.runs):
        for system in arguments.systems:
            command = [sys.executable, "-m", "benchmarks.tpch_bench", "--child", system, "--folder", str(folder)]
            command += ["--parallelism", str(arguments.parallelism), "--memory", arguments.memory, "--queries", *texts]
            watched = measure.run(command, timeout=7200.0, environment=paths)
            lines = [line[7:] for _, line in watched.output if line.startswith("RESULT ")]
            if watched.code or not lines:
                print(f"{system} has failed with code {watched.code}")
                return 1
            result = json.loads(lines[-1])
            result |= {"peak_pss_mb": watched.peak_pss_mb, "other_cores": watched.other_cores}
            results[system].append(result)
    first = next(iter(results.values()))[0]["rows"]
    different = [system for system, runs in results.items() for run in runs if run["rows"] != first]
    if different:
        print(f"the systems have other rows: {', '.join(different)}")
        return 1
    print(f"{'':8}" + "".join(f"{system:>12}" for system in results))
    for name in texts:
        medians = [statistics.median(run["seconds"][name] for run in runs) for runs in results.values()]
        print(f"{name:8}" + "".join(f"{seconds:10.2f} s" for seconds in medians))
    for system, runs in results.items():
        totals = [sum(run["seconds"].values()) for run in runs]
        other = max(run["other_cores"] for run in runs)
        peak = max(run["peak_pss_mb"] for run in runs)
        print(f"{system:12} total {statistics.median(totals):8.2f} s   peak {peak:5.0f} MB   other {other:.2f}")
    if arguments.save and SPARK_SQL in results:
        for system in results:
            if system != SPARK_SQL:
                print(f"kept in {record.write(comparison(system, results, arguments))}")
    return 0


def comparison(
    route: str, results: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace
) -> record.Comparison:
    """The total times of a route beside those of Spark SQL."""

    def figure(system: str, name: str) -> record.Figure:
        totals = [round(sum(run["seconds"].values()), 2) for run in results[system]]
        peak = max(int(run["peak_pss_mb"]) for run in results[system])
        return record.Figure(
            system=name, value=statistics.median(totals), low=min(totals), high=max(totals), peak_pss_mb=peak
        )

    cores = [run["other_cores"] for runs in results.values() for run in runs]
    return record.Comparison(
        id=f"tpch-{route}",
        group="Batch",
        what=f"SQL: TPC-H's queries over {arguments.scale:g} GB, route {route}",
        date=time.strftime("%Y-%m-%d"),
        unit="s",
        better="less",
        ours=figure(route, "Firesteel"),
        beside=(figure(SPARK_SQL, "Spark SQL"),),
        runs=arguments.runs,
        other_cores=(round(min(cores), 2), round(max(cores), 2)),
        command=f"python -m benchmarks.tpch_bench --scale {arguments.scale:g} --runs {arguments.runs} --save",
        goal="at most 1.2 times Spark SQL's time" if route == "spark" else "at most 3 times Spark SQL's time",
    )


def child(arguments: argparse.Namespace) -> int:
    """One system: all queries over few rows, then over all."""
    declarations, texts = queries(arguments.queries)
    system = spark_sql(arguments) if arguments.child == SPARK_SQL else own(arguments, declarations)
    seconds: dict[str, float] = {}
    rows: dict[str, int] = {}
    for size in ("little", "all"):
        run = system(arguments.folder / size)
        for name, text in texts.items():
            began = time.monotonic()
            rows[name] = run(text)
            seconds[name] = time.monotonic() - began
    print("RESULT " + json.dumps({"seconds": seconds, "rows": rows}), flush=True)
    return 0


System = Callable[[Path], Callable[[str], int]]
"""Gives, for a folder with a folder for each table, what computes a query and returns the number of its rows."""


def own(arguments: argparse.Namespace, declarations: str) -> System:
    """One of our routes."""
    from firesteel.datastream import StreamExecutionEnvironment
    from firesteel_sql import StreamTableEnvironment

    def over(folder: Path) -> Callable[[str], int]:
        environment = StreamExecutionEnvironment.get_execution_environment().set_parallelism(arguments.parallelism)
        tables = StreamTableEnvironment.create(environment)
        tables.execute_sql("SET 'execution.runtime-mode' = 'batch'")
        tables.execute_sql(f"SET 'table.exec.batch.route' = '{arguments.child}'")
        for statement in declarations.split(";"):
            options = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = '{folder / statement.split()[2]}'"
            tables.execute_sql(statement.replace("'connector' = 'x'", options))
        return lambda text: sum(1 for _ in tables.execute_sql(text).collect())

    return over


def spark_sql(arguments: argparse.Namespace) -> System:
    """Spark SQL alone, with as many cores."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session = (
        builder.master(f"local[{arguments.parallelism}]")
        .config("spark.driver.memory", arguments.memory)
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def over(folder: Path) -> Callable[[str], int]:
        for table in folder.iterdir():
            session.read.parquet(str(table)).createOrReplaceTempView(table.name)
        return lambda text: len(session.sql(text).collect())

    return over


if __name__ == "__main__":
    sys.exit(main())
