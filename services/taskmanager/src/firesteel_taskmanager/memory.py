"""Measures what slot processes use of the machine's memory, and lets the kernel choose them first when it runs out."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from firesteel.core.call_pool import CallPool
from firesteel.core.process import ProcessId, children_of_all, is_running

logger = logging.getLogger(__name__)
_PROC: Final = Path("/proc")
INTERVAL: Final = 2.0
"""Seconds between two measurements of all slots."""
CLOSE_INTERVAL: Final = 0.5
"""The same, while a slot uses more than ``CLOSE`` of its share."""
CLOSE: Final = 0.8
OOM_SCORE_ADJ: Final = 500
"""Of slot processes: when memory runs out, the kernel kills one of these before a service or a JVM."""

Measured = Callable[[Mapping[str, int]], None]
_MEASUREMENTS: Final = CallPool("memory of slots", threads=1, deadline=None)


def proportional_set_size(pid: int) -> int | None:
    """Bytes of memory of a process, those that it shares divided by the number of sharers; None if it is gone.

    Where the kernel does not say (``smaps_rollup`` is missing or closed to us), its resident set without shared pages.
    """
    try:
        with open(_PROC / str(pid) / "smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        if not (_PROC / str(pid)).exists():
            return None
    except OSError as error:
        logger.debug("smaps_rollup of process %d: %s", pid, error)
    try:
        fields = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def measure_trees(processes: Mapping[str, ProcessId]) -> dict[str, int]:
    """For each process that still runs: bytes (PSS) of it and all its descendants; one look at the process table."""
    children = children_of_all()
    found: dict[str, int] = {}
    for name, process in processes.items():
        total, waiting, seen = 0, [process.pid], {process.pid}
        while waiting:
            pid = waiting.pop()
            total += proportional_set_size(pid) or 0
            new = [child for child in children.get(pid, ()) if child not in seen]
            seen.update(new)
            waiting += new
        if total and is_running(process):
            found[name] = total
    return found


def offer_to_oom_killer(process: ProcessId, score: int = OOM_SCORE_ADJ) -> bool:
    """Raise the ``oom_score_adj`` of a process (its children inherit it), never lower it; False where that fails."""
    path = _PROC / str(process.pid) / "oom_score_adj"
    try:
        if int(path.read_text(encoding="ascii")) < score and is_running(process):
            path.write_text(str(score), encoding="ascii")
    except (OSError, ValueError) as error:
        logger.debug("oom_score_adj of process %d: %s", process.pid, error)
        return False
    return True


class MemoryWatch:
    """Measures slots as long as it runs.

    Args:
        slots: identity of each slot's process by allocation.
        limit: bytes for each slot; None = they are only measured.
        measured: told the result of each round.
        measure: measures; blocks; called in a thread.
    """

    def __init__(
        self,
        slots: Callable[[], Mapping[str, ProcessId]],
        limit: Callable[[], int | None],
        measured: Measured,
        measure: Callable[[Mapping[str, ProcessId]], Mapping[str, int]] = measure_trees,
    ) -> None:
        self._slots, self._limit, self._measured, self._measure = slots, limit, measured, measure

    async def run(self) -> None:
        pause = INTERVAL
        while True:
            await asyncio.sleep(pause)
            slots = dict(self._slots())
            sizes = await _MEASUREMENTS.call(self._measure, slots) if slots else {}
            self._measured(sizes)
            pause = CLOSE_INTERVAL if self._is_close(sizes.values()) else INTERVAL

    def _is_close(self, sizes: Iterable[int]) -> bool:
        limit = self._limit()
        return limit is not None and any(size > CLOSE * limit for size in sizes)


def warn_if_too_large(needed: int, available: int | None, where: str) -> None:
    """Say it at the start if the machine can't give what is configured."""
    if available is not None and needed > available:
        logger.warning(
            "the TaskManager is configured to use %d MiB (taskmanager.memory.process.size), and %s has %d MiB: tasks "
            "may be killed by the kernel before they reach their limits",
            needed >> 20, where, available >> 20,
        )  # fmt: skip
