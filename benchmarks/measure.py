"""Runs a program and watches its whole process tree: memory (PSS) and processor time."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Watched:
    """What a run cost.

    Attributes:
        seconds: from start to end.
        peak_pss_mb: largest proportional set size of all processes together, in MB (10**6 bytes).
        cpu_seconds: processor time of all processes together, as far as it was seen.
        other_cores: cores that processes outside the tree used meanwhile, on average.
        output: standard output, by lines, each with the seconds after the start at which it came.
        code: exit code.
    """

    seconds: float = 0.0
    peak_pss_mb: float = 0.0
    cpu_seconds: float = 0.0
    other_cores: float = 0.0
    output: list[tuple[float, str]] = field(default_factory=list)
    code: int = 0


def tree(root: int) -> list[int]:
    """Ids of a process and all below it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting.extend(children.get(pid, ()))
    return found


def pss_mb(pids: Sequence[int]) -> float:
    """Proportional set size of these processes together, in MB."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            continue
    return total * 1024 / 1e6


def _busy() -> float:
    """Seconds of processor time that the machine has used since it started."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _used(pids: Sequence[int], seen: dict[int, float]) -> None:
    for pid in pids:
        try:
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seen[pid] = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def processor_seconds(root: int) -> float:
    """Processor time that a process and all below it have used, with those that have ended."""
    ticks = 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])  # its own time, and that of children that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def run(
    command: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    timeout: float = 300.0,
    every: float = 1.0,
    on_line: Callable[[str], object] = lambda line: None,
) -> Watched:
    """Run a command to its end, or kill its process group after ``timeout`` seconds; ``on_line`` gets its output.

    Memory and processor time are looked at ``every`` so many seconds; each look takes some 40 ms of a core.
    """
    watched = Watched()
    before, start = _busy(), time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **(environment or {})}
    )
    used: dict[int, float] = {}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(every):
            pids = tree(process.pid)
            watched.peak_pss_mb = max(watched.peak_pss_mb, pss_mb(pids))
            _used(pids, used)

    watcher = threading.Thread(target=watch)
    killer = threading.Timer(timeout, lambda: os.killpg(process.pid, 9))
    watcher.start()
    killer.start()
    assert process.stdout is not None
    for line in process.stdout:
        watched.output.append((time.monotonic() - start, line.rstrip("\n")))
        on_line(watched.output[-1][1])
    watched.code = process.wait()
    watched.seconds = time.monotonic() - start
    killer.cancel()
    stop.set()
    watcher.join()
    watched.cpu_seconds = sum(used.values())
    watched.other_cores = max(0.0, (_busy() - before - watched.cpu_seconds) / watched.seconds)
    return watched
