"""Facts about this machine."""

from __future__ import annotations

import os
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_cores() -> int:
    """Cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def physical_memory() -> int:
    """Bytes of memory that this machine has, or this container may use if that is less."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for path in _CGROUP_LIMITS if (text := _read(path).strip()).isdecimal()]
    return min([machine, *limits])


def free_memory() -> int:
    """Bytes of the machine's memory that could be had now without swapping; 0 where the system does not say."""
    for line in _read(_MEMINFO).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def boot_id() -> str:
    """Another one for each machine and each start of it; of its host in a container."""
    return _read(_BOOT_ID).strip() or os.uname().nodename


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
