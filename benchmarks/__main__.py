"""``./dev bench``: the workloads of benchmarks/README.md, with another system in turn if its command is given.

Examples::

    ./dev bench w1 w2 --runs 3
    ./dev bench w2 --runs 3 --peer 'path/to/run.sh procs w2 5000000 2' --peer-name 'Bytewax 0.21.1' --save
    ./dev bench latency start rest
    ./dev bench checkpoints latency-checkpoints recovery restore
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
import time
from pathlib import Path
from typing import Any

from benchmarks import events, measure

COUNTS = {
    "w1": 40_000_000, "w2": 20_000_000, "latency": 900_000, "latency-checkpoints": 900_000, "w1c": 1_000_000_000,
    "w1cp": 2_000_000_000, "w2c": 300_000_000, "w2cp": 400_000_000, "w2p": 40_000_000, "w3": 20_000_000,
    "w3s": 20_000_000, "w3c": 200_000_000, "w3cs": 200_000_000, "keys": 10_000_000,
}  # fmt: skip
COLUMNAR = ("w1c", "w1cp", "w2c", "w2cp", "w2p", "w4c", "w4p")
WINDOWS = ("w3", "w3s", "w3c", "w3cs")
RATE = 20_000.0
LOOKS, LOOKS_AT_LATENCY = 1.0, 10.0
"""Seconds between two looks at memory and processor time: each takes some 40 ms of a core, which would be the 99th
percentile if it came often."""
OF_CHECKPOINTS = ("checkpoints", "recovery", "restore")
WORKLOADS = [
    "w1", "w2", "w4", *COLUMNAR, *WINDOWS, "latency", "latency-checkpoints", "start", "rest", "cluster", "keys",
    *OF_CHECKPOINTS,
]  # fmt: skip
CHILDREN = ["endless"]
"""Parts of workloads, run in a process of their own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="+", choices=[*WORKLOADS, *CHILDREN])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--count", type=int, help="events; the default gives runs of 20 s and more")
    parser.add_argument("--keys", type=int, default=events.KEYS, help="w2, w2c, w2cp, w2p, latency: different auctions")
    parser.add_argument("--text", action="append", default=[], help="w4: file or folder; may stand several times")
    parser.add_argument("--peer", help="command of another system; it prints 'RESULT {json}' lines with a rate")
    parser.add_argument("--peer-name", default="the peer", help="with its version, for --save")
    parser.add_argument(
        "--save", nargs="?", const="", metavar="NAME", help="keep rate or latency in benchmarks/results, as NAME"
    )
    parser.add_argument(
        "--variant", action="append", help="checkpoints, recovery: w2, w2cm or w2m; may stand several times"
    )
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.child:
        return _child(parsed)
    for what in parsed.what:
        if what in OF_CHECKPOINTS:
            _checkpoints(what, parsed)
        else:
            _report(what, parsed)
    return 0


def _checkpoints(what: str, parsed: argparse.Namespace) -> None:
    """Workloads that print what they found themselves, a process for each variant."""
    from benchmarks.checkpoint_programs import VARIANTS

    for variant in ["all"] if what == "restore" else parsed.variant or (VARIANTS if what == "checkpoints" else ["w2"]):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "benchmarks", what, "--child", out, "--runs", str(parsed.runs)]
            command += [f"--variant={variant}"] if variant in VARIANTS else []
            command += [] if parsed.count is None else ["--count", str(parsed.count)]
            command += [*(f"-D{option}" for option in parsed.options), "--parallelism", str(parsed.parallelism)]
            watched = measure.run(command, timeout=900, on_line=lambda line: print(line, flush=True))
        if watched.code:
            raise SystemExit(f"{what} ended with code {watched.code}: {watched.output[-5:]}")
        print(f"other_cores {watched.other_cores:.2f}, peak_pss_mb {watched.peak_pss_mb:.0f}", flush=True)


def _report(what: str, parsed: argparse.Namespace) -> None:
    ours, theirs = [], []
    for _ in range(parsed.runs):
        ours.append(_ours(what, parsed))
        print(json.dumps({"run": what, **ours[-1]}), flush=True)
        if parsed.peer:
            theirs.append(_peer(parsed.peer))
            print(json.dumps({"peer": what, **theirs[-1]}), flush=True)
    numbers = [key for key, value in ours[0].items() if isinstance(value, int | float)]
    print(f"median {what}: " + ", ".join(f"{key} {statistics.median(r[key] for r in ours):,.4g}" for key in numbers))
    if theirs:
        ratio = statistics.median(r["rate"] for r in ours) / statistics.median(r["rate"] for r in theirs)
        print(f"ratio {what}: {ratio:.2f} times the peer", flush=True)
    if parsed.save is not None:
        from benchmarks import record

        command = shlex.join(["./dev", "bench", *sys.argv[1:]])
        print(
            f"kept in {record.write(record.of_runs(parsed.save or what, ours, theirs, parsed.peer_name, command))}",
            flush=True,
        )
        record.main()


def _ours(what: str, parsed: argparse.Namespace) -> dict[str, Any]:
    if what == "cluster":
        from benchmarks import cluster

        return dict(cluster.run(dict(option.partition("=")[::2] for option in parsed.options)))
    count = parsed.count or COUNTS.get(what, 0)
    with tempfile.TemporaryDirectory() as out:
        options = [f"-D{option}" for option in parsed.options]
        texts = [f"--text={text}" for text in parsed.text]
        command = [sys.executable, "-m", "benchmarks", what, "--child", out, "--count", str(count), *options, *texts]
        command += ["--keys", str(parsed.keys)]
        every = LOOKS_AT_LATENCY if what.startswith("latency") else LOOKS
        watched = measure.run([*command, "--parallelism", str(parsed.parallelism)], every=every)
        if watched.code:
            raise SystemExit(f"{what} ended with code {watched.code}: {watched.output[-5:]}")
        result = {
            key: value for _, line in watched.output if line.startswith("{") for key, value in json.loads(line).items()
        }
        notes = [json.loads(line) for path in Path(out).glob("*.jsonl") for line in path.read_text().splitlines()]
        result.update(_of_notes(what, count, notes, Path(out), parsed.keys))
    result["peak_pss_mb"] = round(watched.peak_pss_mb)
    result["cpu_s"] = round(watched.cpu_seconds, 1)
    result["other_cores"] = round(watched.other_cores, 2)
    return result


def _of_notes(what: str, count: int, notes: list[dict[str, Any]], out: Path, keys: int) -> dict[str, Any]:
    rows = sum(note.get("rows", 0) for note in notes)
    if not rows:
        return {}
    total = sum(note.get("sum", 0) for note in notes)
    wanted = events.expected(what[:2], count, keys) if what[:2] in ("w1", "w2") else (rows, total)
    if (rows, total) != wanted:
        raise SystemExit(f"{what}: wrong result: {rows} rows, sum {total}; expected {wanted}")
    if what in WINDOWS:
        _check_windows(what, count, rows, total, sum(note.get("largest", 0) for note in notes))
    begun = min(note["first_poll"] for note in notes if "first_poll" in note)
    ended = max(note["last_record"] for note in notes if "last_record" in note)
    if what.startswith("latency"):
        import numpy as np

        late = np.concatenate([np.load(path) for path in out.glob("latency-*.npy")]) / 1e6
        names = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p99_9_ms": 99.9}
        return {
            "rows": rows, **{name: round(float(np.percentile(late, q)), 2) for name, q in names.items()},
            "max_ms": round(float(late.max()), 1),
        }  # fmt: skip
    made = rows if what.startswith("w4") else count
    return {"rows": rows, "sum": total, "rate": round(made / (ended - begun)), "seconds": round(ended - begun, 1)}


def _check_windows(what: str, count: int, rows: int, total: int, largest: int) -> None:
    from benchmarks import window_programs

    if total != count or (count <= 40_000_000 and (rows, largest) != window_programs.expected(count)):
        raise SystemExit(f"{what}: wrong result: {rows} rows with {total} records, largest {largest}")


def _peer(command: str) -> dict[str, Any]:
    watched = measure.run(shlex.split(command))
    # processes write at the same time: a line may hold the results of two
    results = [json.loads(found) for _, line in watched.output for found in re.findall(r"RESULT (\{.*?\})", line)]
    if watched.code or not results:
        raise SystemExit(f"the peer ended with code {watched.code}: {watched.output[-5:]}")
    return {
        "rate": sum(result["rate"] for result in results),
        "peak_pss_mb": round(watched.peak_pss_mb),
        "cpu_s": round(watched.cpu_seconds, 1),
        "other_cores": round(watched.other_cores, 2),
    }


def _child(parsed: argparse.Namespace) -> int:
    """One run, in a process of its own."""
    begun = time.monotonic()
    what = parsed.what[0]
    from benchmarks import programs

    options = dict(option.partition("=")[::2] for option in parsed.options)
    if what == "rest":
        return _rest(programs, parsed.parallelism)
    if what == "keys":
        from benchmarks import keys_bench

        keys_bench.run(parsed.count)
        return 0
    if what in OF_CHECKPOINTS:
        return _child_with_checkpoints(what, parsed, options)
    if what == "endless":
        print(_slow_job(programs, parsed.parallelism, options, parsed.child, parsed.count).get_job_id())
        return 0
    if what == "start":
        return _start(programs, parsed, options, begun)
    options.setdefault("rest.port", "0")
    if what == "latency-checkpoints":
        options.setdefault("execution.checkpointing.interval", "1 s")
        options.setdefault("execution.checkpointing.dir", f"{parsed.child}/checkpoints")
        what = "latency"
    if what == "latency":
        options.setdefault("execution.buffer-timeout.interval", "1 ms")
    env = programs.environment(parsed.parallelism, options)
    if what in WINDOWS:
        from benchmarks import window_programs

        window_programs.build(env, what, parsed.count, parsed.child)
    elif what in COLUMNAR:
        from benchmarks import column_programs

        column_programs.build(env, what, parsed.count, parsed.child, parsed.text, parsed.keys)
    else:
        programs.build(env, what, parsed.count, parsed.child, parsed.text, RATE, parsed.keys)
    env.execute(what)
    return 0


def _child_with_checkpoints(what: str, parsed: argparse.Namespace, options: dict[str, str]) -> int:
    from benchmarks import checkpoint_bench, restore_bench

    if what == "checkpoints":
        checkpoint_bench.checkpoints(
            parsed.variant, parsed.count, parsed.runs, parsed.parallelism, parsed.child, options
        )
    elif what == "recovery":
        checkpoint_bench.recovery(parsed.variant or ["w2"], parsed.count, parsed.parallelism, parsed.child, options)
    else:
        restore_bench.run(parsed.count or restore_bench.KEYS, parsed.child)
    return 0


def _first_record(out: str) -> float:
    paths = sorted(Path(out).glob("*.jsonl"))
    notes = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    for path in paths:
        path.unlink()
    return float(min(note["first_record"] for note in notes if "first_record" in note))


def _start(programs: Any, parsed: argparse.Namespace, options: dict[str, str], begun: float) -> int:
    """Seconds from the start of the process, and from later calls of execute(), to the first record at a sink."""
    waits: list[float] = []
    for _ in range(6):
        before = begun if not waits else time.monotonic()
        env = programs.environment(parsed.parallelism, {"rest.port": "0", **options})
        programs.build(env, "w2", 1000, parsed.child, [], RATE)
        env.execute("start")
        waits.append(_first_record(parsed.child) - before)
    later = sorted(waits[1:])
    print(json.dumps({"cold_s": round(waits[0], 2), "next_job_s": round(later[len(later) // 2], 3)}))
    return 0


def _slow_job(programs: Any, parallelism: int, options: dict[str, str], out: str, count: int) -> Any:
    """Starts a job that gets one record a second."""
    from firesteel.common import WatermarkStrategy

    env = programs.environment(parallelism, {"rest.port": "0", **options})
    source = programs.EventSource(count, out, 1.0)
    bids = env.from_source(source, WatermarkStrategy.no_watermarks(), "Events")
    bids.key_by(lambda bid: bid[0]).process(programs.CountByKey()).print()
    return env.execute_async("rest")


def _rest(programs: Any, parallelism: int) -> int:
    """Memory of the process tree while a job runs that gets one record a second."""
    with tempfile.TemporaryDirectory() as out:
        job = _slow_job(programs, parallelism, {}, out, 1000)
        time.sleep(8)
        pids = measure.tree(os.getpid())
        parts = {str(pid): round(measure.pss_mb([pid])) for pid in pids}
        print(json.dumps({"pss_mb": round(measure.pss_mb(pids)), "processes": len(pids), "each": parts}))
        job.cancel().result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
