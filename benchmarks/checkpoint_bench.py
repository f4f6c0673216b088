"""``checkpoints`` and ``recovery``: jobs with checkpoints each second, beside the same without; and after faults.

Each runs in a process of its own, and all its jobs in one embedded cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks import events, programs
from benchmarks.checkpoint_programs import FAULT, VARIANTS, build, notes_of

COUNTS: Final = {"w2": 14_000_000, "w2cm": 260_000_000, "w2m": 11_000_000}
"""Events of a run of about 14 s."""
_WARM_UP: Final = 4.0
"""Seconds from the first record on that do not count: all keys have come by then."""
_FAULTS: Final = 3
_RUNS_BEFORE_FAULT: Final = 3.0
_RESTART_DELAY: Final = "0 s"


def file_system(path: str) -> str:
    """What is mounted there."""
    command = ["df", "--output=fstype,source,target", path]
    return " ".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split())


def _options(out: str, *, checkpoints: bool, more: dict[str, str]) -> dict[str, str]:
    options = {"rest.port": "0", **more}
    if checkpoints:
        options |= {"execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": f"{out}/checkpoints"}
        options = options | more
    return options


def _of_checkpoints(client: Any) -> dict[str, Any]:
    """What the job tells of its checkpoints."""
    address = f"{client.get_web_interface_url()}/jobs/{client.get_job_id()}/checkpoints"
    with urllib.request.urlopen(address) as answer:
        told = json.load(answer)
    summary = told["summary"]
    return {
        "completed": told["counts"]["completed"],
        "failed": told["counts"]["failed"],
        "duration_ms": summary["end_to_end_duration"]["p50"],
        "longest_ms": summary["end_to_end_duration"]["max"],
        "size_mb": round(summary["state_size"]["max"] / 1e6, 2),
    }


def _steady(notes: list[dict[str, Any]]) -> dict[str, float]:
    """Records each second, and microseconds of processor time for each, after the warm-up."""
    sinks = [np.array(note["samples"]) for note in notes if len(note.get("samples", ())) > 1]
    begin = max(samples[0, 0] for samples in sinks) + _WARM_UP
    end = min(samples[-1, 0] for samples in sinks)
    if end <= begin + 1:
        raise SystemExit(
            f"the run was over {end - begin + _WARM_UP:.1f} s after its first record: give a larger --count"
        )
    rows = used = 0.0
    for samples in sinks:
        rows += float(np.diff(np.interp([begin, end], samples[:, 0], samples[:, 1]))[0])
        used += float(np.diff(np.interp([begin, end], samples[:, 0], samples[:, 2]))[0])
    return {
        "rate": round(rows / float(end - begin)),
        "cpu_us": round(used / rows * 1e6, 4),
        "seconds": round(end - begin, 1),
    }


def _run(variant: str, count: int, parallelism: int, out: str, options: dict[str, str], checkpoints: bool) -> Any:
    shutil.rmtree(out, ignore_errors=True)
    Path(out).mkdir(parents=True)
    env = programs.environment(parallelism, _options(out, checkpoints=checkpoints, more=options))
    build(env, variant, count, out)
    client = env.execute_async(variant)
    client.get_job_execution_result().result()
    notes = notes_of(out)
    found = sum(note.get("rows", 0) for note in notes), sum(note.get("sum", 0) for note in notes)
    result: dict[str, Any] = {"variant": variant, "checkpoints": checkpoints, **_steady(notes)}
    if checkpoints:
        result |= _of_checkpoints(client)
        if result["completed"] < result["seconds"] / 10 or result["failed"] > 1:  # one may be cut by the end
            raise SystemExit(f"{variant}: there were not enough checkpoints, or some failed: {result}")
    return result, found


def checkpoints(
    variants: list[str], count: int | None, runs: int, parallelism: int, out: str, options: dict[str, str]
) -> None:
    """Each variant without checkpoints and with one each second, in turn; prints a line for each run and a median."""
    print(json.dumps({"checkpoints_in": file_system(out)}), flush=True)
    for variant in variants:
        total = count or COUNTS[variant]
        expected = events.expected("w2", total, VARIANTS[variant][0])
        ours: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
        for _ in range(runs):
            for with_them in (False, True):
                result, found = _run(variant, total, parallelism, f"{out}/{variant}", options, with_them)
                if found != expected:
                    raise SystemExit(f"{variant}: wrong result: {found}, expected {expected}")
                ours[with_them].append(result)
                print(json.dumps(result), flush=True)
        median = {
            (with_them, name): statistics.median(result[name] for result in results)
            for with_them, results in ours.items()
            for name in ("rate", "cpu_us")
        }
        below = 100 * (1 - median[True, "rate"] / median[False, "rate"])
        more = 100 * (median[True, "cpu_us"] / median[False, "cpu_us"] - 1)
        print(
            f"checkpoints {variant}: {median[True, 'rate']:,.0f} records/s with, {median[False, 'rate']:,.0f} without: "
            f"{below:.1f} % below; {more:+.1f} % processor time of the slots for each record",
            flush=True,
        )


# -- recovery


def _first_after(out: str, moment: float, sinks: int) -> list[float]:
    """When each sink got its first record after a moment."""
    for _ in range(600):
        time.sleep(0.05)
        found = sorted(n["first_record"] for n in notes_of(out) if n.get("first_record", 0) > moment)
        if len(found) >= sinks:
            return found
    raise SystemExit("the job did not come back within 30 s")


def recovery(variants: list[str], count: int | None, parallelism: int, out: str, options: dict[str, str]) -> None:
    """From a fault to the first record at the sinks, in W2 with checkpoints each second; the restart delay is 0."""
    restart = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": _RESTART_DELAY,
    }
    for variant in variants:
        folder = f"{out}/{variant}"
        Path(folder).mkdir(parents=True)
        env = programs.environment(parallelism, _options(folder, checkpoints=True, more={**restart, **options}))
        build(env, variant, count or 10**9, folder)
        client = env.execute_async(variant)
        _first_after(folder, 0.0, parallelism)
        for fault in ("raised", "killed"):
            waits, all_waits = [], []
            for _ in range(_FAULTS):
                completed = _of_checkpoints(client)["completed"]
                time.sleep(_RUNS_BEFORE_FAULT)
                while _of_checkpoints(client)["completed"] < completed + 1:
                    time.sleep(0.05)
                moment = _raise(folder) if fault == "raised" else _kill(folder)
                found = _first_after(folder, moment, parallelism)
                waits.append(found[0] - moment)
                all_waits.append(found[parallelism - 1] - moment)
            told = {
                "recovery": variant, "fault": fault, "restart_delay": _RESTART_DELAY,
                "first_record_s": [round(wait, 2) for wait in waits],
                "all_sinks_s": [round(wait, 2) for wait in all_waits],
                "state_mb": _of_checkpoints(client)["size_mb"],
            }  # fmt: skip
            print(json.dumps(told), flush=True)
            print(f"recovery {variant} {fault}: first record after {statistics.median(waits):.2f} s", flush=True)
        client.cancel().result()
        time.sleep(1)


def _raise(out: str) -> float:
    asked = time.monotonic()
    (Path(out) / FAULT).touch()
    while True:
        time.sleep(0.01)
        raised = [float(n["raised"]) for n in notes_of(out) if n.get("raised", 0) > asked]
        if raised:
            return raised[0]


def _kill(out: str) -> float:
    newest = max((n for n in notes_of(out) if "pid" in n), key=lambda n: n["first_record"])
    moment = time.monotonic()
    os.kill(newest["pid"], signal.SIGKILL)
    return moment
