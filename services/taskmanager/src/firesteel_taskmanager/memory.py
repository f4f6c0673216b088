"""Measures what slot processes use of the machine, and lets the kernel choose them first when memory runs out."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import Final, NamedTuple

from firesteel.core.call_pool import CallPool
from firesteel.core.process import ProcessId, children_of_all, cpu_seconds, is_running

logger = logging.getLogger(__name__)
_PROC: Final = Path("/proc")
INTERVAL: Final = 2.0
"""Seconds between two measurements of all slots."""
UNLIMITED_INTERVAL: Final = 10.0
"""The same where slots have no limit: nobody waits for the figures but people."""
CLOSE_INTERVAL: Final = 0.5
"""The same, while a slot uses more than ``CLOSE`` of its share."""
CLOSE: Final = 0.8
OOM_SCORE_ADJ: Final = 500
"""``oom_score_adj`` of slot processes: out of memory, the kernel kills one of these before a service or a JVM."""


class SlotUse(NamedTuple):
    """What a slot's process and all its descendants use.

    Attributes:
        memory: bytes (PSS).
        cpu_seconds: processor time since their start, of those that run and of those that they have waited for.
    """

    memory: int
    cpu_seconds: float


Measured = Callable[[Mapping[str, SlotUse]], None]
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


def measure_trees(processes: Mapping[str, ProcessId]) -> dict[str, SlotUse]:
    """Measure each process that still runs with all its descendants; one look at the process table."""
    children = children_of_all()
    use_by_name: dict[str, SlotUse] = {}
    for name, process in processes.items():
        total, seconds, waiting, known_pids = 0, 0.0, [process.pid], {process.pid}
        while waiting:
            pid = waiting.pop()
            total += proportional_set_size(pid) or 0
            seconds += cpu_seconds(pid)
            new_pids = [child for child in children.get(pid, ()) if child not in known_pids]
            known_pids.update(new_pids)
            waiting += new_pids
        if total and is_running(process):
            use_by_name[name] = SlotUse(total, seconds)
    return use_by_name


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
        measured: called with the result of each round.
        measure: measures the processes; blocks, and is called in a thread.
    """

    def __init__(
        self,
        slots: Callable[[], Mapping[str, ProcessId]],
        limit: Callable[[], int | None],
        measured: Measured,
        measure: Callable[[Mapping[str, ProcessId]], Mapping[str, SlotUse]] = measure_trees,
    ) -> None:
        self._slots, self._limit, self._measured, self._measure = slots, limit, measured, measure

    async def run(self) -> None:
        pause = INTERVAL
        while True:
            await asyncio.sleep(pause)
            slots = dict(self._slots())
            try:
                uses = await _MEASUREMENTS.call(self._measure, slots) if slots else {}
            except (OSError, SubprocessError) as error:  # no file descriptors, say; the tasks go on nevertheless
                logger.warning("slots can't be measured, which is tried again: %s", error)
                continue
            self._measured(uses)
            pause = self._pause(uses.values())

    def _pause(self, uses: Iterable[SlotUse]) -> float:
        limit = self._limit()
        if limit is None:
            return UNLIMITED_INTERVAL
        return CLOSE_INTERVAL if any(use.memory > CLOSE * limit for use in uses) else INTERVAL


def warn_if_too_large(needed: int, available: int | None, machine: str) -> None:
    """Log a warning if a machine has less memory than the TaskManager is configured to use."""
    if available is not None and needed > available:
        logger.warning(
            "the TaskManager is configured to use %d MiB (taskmanager.memory.process.size), and %s has %d MiB: tasks "
            "may be killed by the kernel before they reach their limits",
            needed >> 20, machine, available >> 20,
        )  # fmt: skip
