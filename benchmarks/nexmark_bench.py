"""Nexmark by SQL, beside another system: events for each second of processor time, and for each second.

    python -m benchmarks.nexmark_bench                           # all queries, 2 million events, state on the heap
    python -m benchmarks.nexmark_bench q4 q20 --runs 3 --backend rocksdb
    python -m benchmarks.nexmark_bench q4 --sums --events 200000          # the sums of the final table, to compare
    python -m benchmarks.nexmark_bench q4 --profile FOLDER       # stacks with how often they were seen, by py-spy
    python -m benchmarks.nexmark_bench --runs 3 --save --peer-name 'Flink SQL 2.3, Java' \
        --peer 'path/to/run.sh q={query} p=2 n={events} backend={backend} ckpt=10s sql={sql}'

The queries are in ``nexmark.sql``, which the other system can run as it is. Its command prints ``RESULT {json}`` with
``per_cpu_s`` and ``rate``.

Each run is a process with a cluster of its own. A fifth of the events warms up; then all are run, and the first fifth
of them is left out: what is counted begins when so many were read. Processor time is that of the process and of all
below it: Dispatcher, JobMaster, TaskManager, slots. Checkpoints are taken every ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from benchmarks import measure, record

QUERIES: Final = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q15", "q16", "q17", "q18", "q19", "q20")
SQL: Final = Path(__file__).with_name("nexmark.sql")
_BACKENDS: Final = {"hashmap": "on the heap", "rocksdb": "in RocksDB"}
_LOOK_SECONDS: Final = 0.02
"""Between two looks at how many events were read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", metavar="query", help=f"of {', '.join(QUERIES)}; all if there is none")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--backend", default="hashmap", choices=list(_BACKENDS))
    parser.add_argument("--sums", action="store_true", help="print the sums of the columns of the final table")
    parser.add_argument("--mode", default="upsert", choices=["upsert", "all"], help="changes that the sink takes")
    parser.add_argument("--profile", metavar="FOLDER", help="samples of all stacks by py-spy, if it is installed")
    parser.add_argument("--peer", help="command of another system, with {query}, {events}, {backend}, {sql} in it")
    parser.add_argument("--peer-name", default="the peer", help="with its version, for --save")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    unknown = set(parsed.queries) - set(QUERIES)
    if unknown:
        parser.error(f"there is no query {', '.join(sorted(unknown))}")
    if parsed.child:
        _run(parsed.queries[0], parsed)
        return
    ratios = [_compare(query, parsed) for query in parsed.queries or QUERIES]
    known = [ratio for ratio in ratios if ratio is not None]
    if known:
        print(f"geometric mean of {len(known)}: {statistics.geometric_mean(known):.2f}, least {min(known):.2f}")
    if parsed.save:
        record.main()


def _compare(query: str, parsed: argparse.Namespace) -> float | None:
    """Run a query, in turn with the other system; returns how many times its events for a second of a core ours has."""
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(parsed.runs):
        ours.append(_ours(query, parsed))
        if parsed.peer:
            texts = {"query": query, "events": parsed.events, "backend": parsed.backend, "sql": SQL}
            theirs.append(_watched(query, shlex.split(parsed.peer.format(**texts))))
    line = f"{query:4} {parsed.backend}: {_shown(ours)}"
    ratio = None
    if theirs:
        ratio = _median(ours, "per_cpu_s") / _median(theirs, "per_cpu_s")
        line += f"; {parsed.peer_name}: {_shown(theirs)}; ratio {ratio:.2f}"
    print(line, flush=True)
    if parsed.save:
        _save(query, parsed, ours, theirs)
    return ratio


def _shown(runs: Sequence[dict[str, Any]]) -> str:
    return f"{_median(runs, 'per_cpu_s') / 1000:,.0f} k/core s, {_median(runs, 'rate') / 1000:,.0f} k/s"


def _median(runs: Sequence[dict[str, Any]], key: str) -> float:
    return float(statistics.median(run[key] for run in runs))


def _ours(query: str, parsed: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.nexmark_bench", query, "--child", folder]
        command += ["--events", str(parsed.events), "--parallelism", str(parsed.parallelism)]
        command += ["--backend", parsed.backend, "--mode", parsed.mode, *(f"-D{option}" for option in parsed.options)]
        command += ["--sums"] if parsed.sums else []
        if parsed.profile:
            Path(parsed.profile).mkdir(parents=True, exist_ok=True)
            samples = Path(parsed.profile) / f"{query}-{parsed.backend}.txt"
            command = ["py-spy", "record", "--subprocesses", "--format", "raw", "-o", str(samples), "--", *command]
        return _watched(query, command)


def _watched(query: str, command: list[str]) -> dict[str, Any]:
    """Run a command to its end; returns what it gave as RESULT, with the memory of its processes."""
    watched = measure.run(command, timeout=1800)
    results = [json.loads(text) for _, line in watched.output for text in re.findall(r"RESULT (\{.*\})", line)]
    if watched.code or len(results) != 1:
        lines = "\n".join(line for _, line in watched.output[-40:])
        raise SystemExit(f"{query}: {shlex.join(command)} ended with code {watched.code}:\n{lines}")
    result = {**results[0], "peak_pss_mb": round(watched.peak_pss_mb), "other_cores": round(watched.other_cores, 2)}
    print(json.dumps({"query": query, **result}), flush=True)
    return result


def _save(query: str, parsed: argparse.Namespace, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Keep the figures: millions of events for each second of processor time."""

    def figures(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**run, "rate": run["per_cpu_s"]} for run in runs]

    command = shlex.join(["python", "-m", "benchmarks.nexmark_bench", *sys.argv[1:]])
    name = f"nexmark-{query}" + ("" if parsed.backend == "hashmap" else f"-{parsed.backend}")
    comparison = record.of_runs(name, figures(ours), figures(theirs), parsed.peer_name, command)
    what = f"Nexmark {query}, events for a second of a core, state {_BACKENDS[parsed.backend]}"
    comparison = msgspec.structs.replace(comparison, group="SQL", what=what, goal="4 on average, none below 1.5")
    print(f"kept in {record.write(comparison)}", flush=True)


# -- in a process of its own


def _run(query: str, parsed: argparse.Namespace) -> None:
    """Run a query twice, and print what the second run has shown."""
    _execute(query, parsed, max(1, parsed.events // 5), Path(parsed.child) / "warm-up", warms_up=True)
    result = _execute(query, parsed, parsed.events, Path(parsed.child) / "run")
    print(f"RESULT {json.dumps(result)}", flush=True)


def _execute(
    query: str, parsed: argparse.Namespace, events: int, folder: Path, *, warms_up: bool = False
) -> dict[str, Any]:
    from benchmarks import nexmark_tables

    folder.mkdir()
    np.zeros(nexmark_tables.MOST_READERS, np.int64).tofile(folder / "positions")
    nexmark_tables.declare()
    environment = _environment(parsed, folder)
    sections = dict(re.findall(r"^-- (\w+)\n(.*?)\n*(?=^-- |\Z)", SQL.read_text(), re.MULTILINE | re.DOTALL))
    tables = sections["tables"].replace("'$N'", f"'{events}', 'folder' = '{folder}'")
    for statement in tables.split(";\n"):
        environment.execute_sql(statement)
    relation = environment.sql_query(sections[query])._relation
    from firesteel_sql.texts import type_text

    columns = ", ".join(f"`{column.name}` {type_text(column.type.nullable_())}" for column in relation.columns)
    sums = "on" if parsed.sums else "off"
    with_clause = f"'connector' = 'tap', 'folder' = '{folder}', 'mode' = '{parsed.mode}', 'sums' = '{sums}'"
    environment.execute_sql(f"CREATE TABLE answers ({columns}) WITH ({with_clause})")
    watch = _Watch(folder / "positions", 0 if warms_up else events // 5)
    result = environment.execute_sql(f"INSERT INTO answers {sections[query]}")
    watch.start()
    result.wait()
    watch.stop()
    return {"q": query, "mode": parsed.mode, **watch.result(events, folder)}


def _environment(parsed: argparse.Namespace, folder: Path) -> Any:
    from firesteel.common import Configuration
    from firesteel_sql import EnvironmentSettings, TableEnvironment

    options = {
        "parallelism.default": str(parsed.parallelism), "state.backend.type": parsed.backend, "rest.port": "0",
        "execution.checkpointing.interval": "10 s", "execution.checkpointing.dir": f"{folder}/checkpoints",
    }  # fmt: skip
    options |= dict(option.partition("=")[::2] for option in parsed.options)
    configuration = Configuration.from_dict(options)
    settings = EnvironmentSettings(configuration=configuration)
    return TableEnvironment.create(settings)


class _Watch:
    """Looks at processor time when enough events were read, and at the end.

    Args:
        positions: the file in which readers enter how many events they have read.
        first: events that are left out.
    """

    def __init__(self, positions: Path, first: int) -> None:
        self._positions, self._first = np.memmap(positions, np.int64, "r"), first
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._began = self._ended = (0.0, 0.0, 0)

    def start(self) -> None:
        """Wait for the first events in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """The job has ended."""
        self._ended = self._look()
        self._thread.join()

    def _look(self) -> tuple[float, float, int]:
        return time.monotonic(), measure.processor_seconds(os.getpid()), int(self._positions.sum())

    def _wait(self) -> None:
        while self._positions.sum() <= self._first:
            time.sleep(_LOOK_SECONDS)
        self._began = self._look()

    def result(self, events: int, folder: Path) -> dict[str, Any]:
        """What the run has shown."""
        began, cpu_before, before = self._began
        _, cpu, read = self._ended
        if read != events:
            raise SystemExit(f"{read} of {events} events were read")
        seen = [json.loads(path.read_text()) for path in folder.glob("sink-*.json")]
        seconds = max(part["last"] for part in seen) - began
        kinds = np.sum([part["kinds"] for part in seen], axis=0).tolist()
        totals: dict[str, int] = {}
        for part in seen:
            for name, total in part["totals"].items():
                totals[name] = totals.get(name, 0) + total
        return {
            "rate": round((read - before) / seconds), "per_cpu_s": round((read - before) / (cpu - cpu_before)),
            "seconds": round(seconds, 2), "cpu_seconds": round(cpu - cpu_before, 2), "events": events,
            "kinds": kinds, "net": kinds[0] - kinds[1] + kinds[2] - kinds[3], "sums": list(totals.values()),
        }  # fmt: skip


if __name__ == "__main__":
    main()
