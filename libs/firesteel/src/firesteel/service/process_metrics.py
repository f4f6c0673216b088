"""Metrics of a process under the names that Flink's clients ask for: ``Status.JVM.Memory.Heap.Used`` and others.

There is no JVM in the services: where a name means the JVM it stands for this Python process (docs/rest-api.md).
"""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
from collections.abc import Iterable
from typing import Any, Final

from firesteel.core.machine import physical_memory
from firesteel.service.measured import Measured

_NONE: Final = (
    "Status.JVM.Memory.NonHeap.Used", "Status.JVM.Memory.NonHeap.Committed", "Status.JVM.Memory.NonHeap.Max",
    "Status.JVM.Memory.Metaspace.Used", "Status.JVM.Memory.Metaspace.Committed", "Status.JVM.Memory.Metaspace.Max",
    "Status.JVM.Memory.Direct.Count", "Status.JVM.Memory.Direct.MemoryUsed", "Status.JVM.Memory.Direct.TotalCapacity",
    "Status.JVM.Memory.Mapped.Count", "Status.JVM.Memory.Mapped.MemoryUsed", "Status.JVM.Memory.Mapped.TotalCapacity",
    "Status.JVM.ClassLoader.ClassesUnloaded", "Status.Flink.Memory.Managed.Used", "Status.Flink.Memory.Managed.Total",
    "Status.Shuffle.Netty.TotalMemorySegments", "Status.Shuffle.Netty.AvailableMemorySegments",
    "Status.Shuffle.Netty.UsedMemorySegments", "Status.Shuffle.Netty.TotalMemory", "Status.Shuffle.Netty.UsedMemory",
    "Status.Shuffle.Netty.AvailableMemory", "Status.Shuffle.Netty.RequestedMemoryUsage",
)  # fmt: skip
"""Metrics that a Python process does not have: they are 0, since clients expect a number."""


class _Collections:
    """Time that the garbage collector has taken, since the first question."""

    def __init__(self) -> None:
        self._began, self.seconds, self._watched = 0.0, 0.0, 0.0

    def ms(self) -> tuple[int, float]:
        """Milliseconds in all, and per second since the first question."""
        now = time.monotonic()
        if not self._watched:
            self._watched = now
            gc.callbacks.append(self._changed)
        since = now - self._watched
        return int(self.seconds * 1000), self.seconds * 1000 / since if since else 0.0

    def _changed(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif self._began:
            self.seconds += time.perf_counter() - self._began


_collections = _Collections()


def process_values(measured: Iterable[Measured], scope: tuple[str, ...]) -> dict[str, Any]:
    """Metrics of a process by Flink's dotted names.

    Args:
        measured: all metrics of a service.
        scope: ``JOBMANAGER`` or ``TASKMANAGER``; the process's metrics are directly in it, or in its ``Status``.
    """
    values: dict[str, Any] = dict.fromkeys(_NONE, 0)
    for metric in measured:
        inner = metric.scope[len(scope) :]
        if metric.scope[: len(scope)] != scope or metric.quantiles is not None or (inner and inner[0] != "Status"):
            continue
        name = metric.name.replace("_", ".") if inner else metric.name
        values[".".join((*inner, name))] = metric.value
    total, rate = _collections.ms()
    values["Status.JVM.GarbageCollector.All.Time"] = total
    values["Status.JVM.GarbageCollector.All.TimeMsPerSecond"] = rate
    values["Status.JVM.ClassLoader.ClassesLoaded"] = len(sys.modules)
    used = values.get("Status.JVM.Memory.Heap.Used", 0)
    values.setdefault("Status.JVM.Memory.Heap.Committed", used)
    values.setdefault("Status.JVM.Memory.Heap.Max", physical_memory())
    return values


def environment() -> dict[str, Any]:
    """The environment of this process in the shape of ``/jobmanager/environment``, with Python in place of the JVM."""
    options = [f"-{name}" for name in ("E", "I", "O", "P", "s", "S") if _flag(name)]
    options += [f"-X {name}" for name in sys._xoptions]
    return {
        "jvm": {
            "version": f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
            "arch": platform.machine(),
            "options": options,
        },
        "classpath": [os.path.abspath(path) for path in sys.path if path],
    }


def _flag(letter: str) -> bool:
    names = {
        "E": "ignore_environment",
        "I": "isolated",
        "O": "optimize",
        "P": "safe_path",
        "s": "no_user_site",
        "S": "no_site",
    }
    return bool(getattr(sys.flags, names[letter]))
