"""``./dev bench``: the workloads of benchmarks/README.md, with another system in turn if its command is given.

Examples::

    ./dev bench w1 w2 --runs 3
    ./dev bench w2 --peer 'path/to/run.sh procs w2 {count} 2' --peer-count 4000000
    ./dev bench latency start rest
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import events, measure

COUNTS = {"w1": 40_000_000, "w2": 20_000_000, "w4": 0, "latency": 900_000}
RATE = 20_000.0
WORKLOADS = ["w1", "w2", "w4", "latency", "start", "rest", "cluster"]
CHILDREN = ["endless"]
"""Parts of workloads, run in a process of their own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="+", choices=[*WORKLOADS, *CHILDREN])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--count", type=int, help="events; the default gives runs of 20 s and more")
    parser.add_argument("--text", action="append", default=[], help="w4: file or folder; may stand several times")
    parser.add_argument("--peer", help="command of another system; it prints 'RESULT {json}' lines with a rate")
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.child:
        return _child(parsed)
    for what in parsed.what:
        _report(what, parsed)
    return 0


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


def _ours(what: str, parsed: argparse.Namespace) -> dict[str, Any]:
    if what == "cluster":
        from benchmarks import cluster

        return dict(cluster.run(dict(option.partition("=")[::2] for option in parsed.options)))
    count = parsed.count or COUNTS.get(what, 0)
    with tempfile.TemporaryDirectory() as out:
        options = [f"-D{option}" for option in parsed.options]
        texts = [f"--text={text}" for text in parsed.text]
        command = [sys.executable, "-m", "benchmarks", what, "--child", out, "--count", str(count), *options, *texts]
        watched = measure.run([*command, "--parallelism", str(parsed.parallelism)])
        if watched.code:
            raise SystemExit(f"{what} ended with code {watched.code}: {watched.output[-5:]}")
        result = {
            key: value for _, line in watched.output if line.startswith("{") for key, value in json.loads(line).items()
        }
        notes = [json.loads(line) for path in Path(out).glob("*.jsonl") for line in path.read_text().splitlines()]
        result.update(_of_notes(what, count, notes, Path(out)))
    result["peak_pss_mb"] = round(watched.peak_pss_mb)
    result["other_cores"] = round(watched.other_cores, 2)
    return result


def _of_notes(what: str, count: int, notes: list[dict[str, Any]], out: Path) -> dict[str, Any]:
    rows = sum(note.get("rows", 0) for note in notes)
    if not rows:
        return {}
    total = sum(note.get("sum", 0) for note in notes)
    if what in ("w1", "w2") and (rows, total) != events.expected(what, count):
        raise SystemExit(f"{what}: wrong result: {rows} rows, sum {total}; expected {events.expected(what, count)}")
    begun = min(note["first_poll"] for note in notes if "first_poll" in note)
    ended = max(note["last_record"] for note in notes if "last_record" in note)
    if what == "latency":
        import numpy as np

        late = np.concatenate([np.load(path) for path in out.glob("latency-*.npy")]) / 1e6
        names = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p99_9_ms": 99.9}
        return {
            "rows": rows, **{name: round(float(np.percentile(late, q)), 2) for name, q in names.items()},
            "max_ms": round(float(late.max()), 1),
        }  # fmt: skip
    made = rows if what == "w4" else count
    return {"rows": rows, "sum": total, "rate": round(made / (ended - begun)), "seconds": round(ended - begun, 1)}


def _peer(command: str) -> dict[str, Any]:
    watched = measure.run(shlex.split(command))
    results = [json.loads(line.partition("RESULT ")[2]) for _, line in watched.output if "RESULT " in line]
    if watched.code or not results:
        raise SystemExit(f"the peer ended with code {watched.code}: {watched.output[-5:]}")
    return {
        "rate": sum(result["rate"] for result in results),
        "peak_pss_mb": round(watched.peak_pss_mb),
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
    if what == "endless":
        print(_slow_job(programs, parsed.parallelism, options, parsed.child, parsed.count).get_job_id())
        return 0
    if what == "start":
        return _start(programs, parsed, options, begun)
    options.setdefault("rest.port", "0")
    if what == "latency":
        options.setdefault("execution.buffer-timeout.interval", "1 ms")
    env = programs.environment(parsed.parallelism, options)
    programs.build(env, what, parsed.count, parsed.child, parsed.text, RATE)
    env.execute(what)
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
