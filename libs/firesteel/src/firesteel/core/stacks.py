"""Shows what the threads of this process do: dumps for people, and samples for flame graphs. Standard library only.

Sampling costs the threads only the moments in which the sampling thread holds the interpreter's lock.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["DEPTH", "Samples", "ThreadSample", "dump_threads", "frames_of", "other_threads", "process_name", "sample"]

DEPTH: Final = 100
"""Frames of a stack that are kept: the innermost ones."""
_BUSY_SHARE: Final = 0.5
"""A thread counts as on the processor if it used it for this share of the time between two samples."""
_SWITCH: Final = 0.0001
"""Switch interval in seconds while threads are sampled. With Python's default of 5 ms a thread is mostly seen where it
gives up the interpreter's lock by itself: a loop that works for 2 ms and then polls was at its poll in 89 of 100
samples; with this interval, in 1."""
Stack = tuple[str, ...]


def dump_threads(prefix: str = "") -> list[dict[str, str]]:
    """All threads with their stacks, in the shape of Flink's thread dump.

    Args:
        prefix: of the names.
    """
    threads = {thread.ident: thread for thread in threading.enumerate()}
    this_thread, entries = threading.get_ident(), []
    for ident, frame in sys._current_frames().items():
        thread = threads.get(ident)
        name = prefix + (thread.name if thread is not None else f"thread {ident}")
        kind = " daemon" if thread is not None and thread.daemon else ""
        note = " (makes this dump)" if ident == this_thread else ""
        text = "".join(traceback.format_stack(frame)).rstrip()
        head = f'"{name}"{kind} ident={ident} native={_native(thread)}{note}'
        entries.append({"threadName": name, "stringifiedThreadInfo": f"{head}\n{text}\n"})
    return entries


def process_name() -> str:
    """Host and pid, which tell this process from all others that live."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _native(thread: threading.Thread | None) -> int:
    return (thread.native_id or 0) if thread is not None else 0


def frames_of(frame: FrameType | None, depth: int = DEPTH) -> Stack:
    """A stack as names, the outermost first."""
    names: list[str] = []
    while frame is not None and len(names) < depth:
        module = frame.f_globals.get("__name__", "?")
        names.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(names))


@dataclass(frozen=True)
class ThreadSample:
    """The stack of one thread at one moment.

    Attributes:
        key: under which it is counted; None: it is not.
        note: in place of the stack, where what the thread does is not what the key does.
    """

    key: str | None
    note: str = ""


@dataclass
class Samples:
    """How often each stack was seen.

    Attributes:
        on_cpu: while the thread used the processor.
        off_cpu: while it waited.
    """

    on_cpu: Counter[Stack] = field(default_factory=Counter)
    off_cpu: Counter[Stack] = field(default_factory=Counter)

    def to_plain(self) -> dict[str, Any]:
        return {
            name: [[list(stack), count] for stack, count in counts.items()]
            for name, counts in (("on_cpu", self.on_cpu), ("off_cpu", self.off_cpu))
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Samples:
        """The inverse of ``to_plain``.

        Raises:
            KeyError, TypeError, ValueError: it is malformed.
        """
        return cls(*(Counter({tuple(map(str, s)): int(n) for s, n in plain[key]}) for key in ("on_cpu", "off_cpu")))

    def add(self, other: Samples) -> None:
        """Add the counts of other samples."""
        self.on_cpu.update(other.on_cpu)
        self.off_cpu.update(other.off_cpu)


class _QuickSwitches:
    """Lowers the interpreter's switch interval while at least one thread samples; counts them, as several may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looking, self._before = 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._looking += 1
            if self._looking == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(_SWITCH, self._before))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._looking -= 1
            if not self._looking:
                sys.setswitchinterval(self._before)


_quick_switches = _QuickSwitches()


def sample(
    look: Callable[[], Mapping[int, Iterable[ThreadSample]]],
    count: int,
    interval: float,
    *,
    depth: int = DEPTH,
    wanted: Callable[[], bool] = lambda: True,
    sleep: Callable[[float], None] = time.sleep,
    cpu_times: Callable[[], Mapping[int, int]] | None = None,
) -> dict[str, Samples]:
    """Sample the stacks of threads at regular intervals.

    Args:
        look: returns the threads to sample (by ``threading.get_ident``), and under which keys. Called before and after
            the stacks are taken: a thread whose answers differ is not counted in this round.
        count: number of rounds.
        interval: seconds between them.
        depth: frames of a stack that are kept, the innermost ones.
        wanted: called before each round; False ends the sampling.
        sleep: waits for some seconds.
        cpu_times: nanoseconds that each thread has used the processor; by default read from the system.

    Returns:
        The samples by the keys that ``look`` named.
    """
    times_of = cpu_times or thread_cpu_times
    samples_by_key: dict[str, Samples] = {}
    cpu_before, looked_at = times_of(), time.monotonic_ns()
    with _quick_switches:
        for _ in range(count):
            if not wanted():
                break
            sleep(interval)
            samples_by_thread, frames = look(), sys._current_frames()
            stacks = {ident: frames_of(frames.get(ident), depth) for ident in samples_by_thread}
            del frames
            afterwards = look()
            cpu_after, now = times_of(), time.monotonic_ns()
            for ident, thread_samples in samples_by_thread.items():
                # The stack may be of either key if the thread went over to other work in between: leave it out.
                unchanged = ident in afterwards and list(afterwards[ident]) == list(thread_samples)
                if not unchanged or not stacks[ident]:
                    continue
                busy = cpu_after.get(ident, 0) - cpu_before.get(ident, 0) >= _BUSY_SHARE * (now - looked_at)
                for thread_sample in thread_samples:
                    if thread_sample.key is None:
                        continue
                    samples = samples_by_key.setdefault(thread_sample.key, Samples())
                    if thread_sample.note:
                        samples.off_cpu[(thread_sample.note,)] += 1
                    else:
                        (samples.on_cpu if busy else samples.off_cpu)[stacks[ident]] += 1
            cpu_before, looked_at = cpu_after, now
    return samples_by_key


def other_threads() -> dict[int, list[ThreadSample]]:
    """All threads but the calling one, under their names; for ``sample``."""
    this_thread = threading.get_ident()
    return {
        thread.ident: [ThreadSample(thread.name)]
        for thread in threading.enumerate()
        if thread.ident is not None and thread.ident != this_thread
    }


def thread_cpu_times() -> dict[int, int]:
    """Nanoseconds that each thread has used the processor, by ``threading.get_ident``; empty where Linux does not say.

    ``time.pthread_getcpuclockid`` is no way to it: it crashes if the thread has just ended.
    """
    times: dict[int, int] = {}
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii")
            times[thread.ident or 0] = int(text.split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return times
