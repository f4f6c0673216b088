"""What the threads of this process are doing: dumps for people, and samples for flame graphs. Standard library only.

Looking costs the threads nothing but the moments in which the looking thread holds the interpreter's lock.
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
"""A thread that used the processor for this share of the time between two looks was on it."""
_SWITCH: Final = 0.0001
"""Seconds after which a thread gives the interpreter's lock to the one that looks. By default it keeps it for 5 ms, so
it would mostly be seen where it gives it up by itself: a loop that works for 2 ms and polls, at its poll (in 89 of 100
looks, with this in 1)."""
Stack = tuple[str, ...]


def dump_threads(prefix: str = "") -> list[dict[str, str]]:
    """All threads with their stacks, in the shape of Flink's thread dump.

    Args:
        prefix: of the names.
    """
    names = {thread.ident: thread for thread in threading.enumerate()}
    own, found = threading.get_ident(), []
    for ident, frame in sys._current_frames().items():
        thread = names.get(ident)
        name = prefix + (thread.name if thread is not None else f"thread {ident}")
        kind = " daemon" if thread is not None and thread.daemon else ""
        looks = " (makes this dump)" if ident == own else ""
        text = "".join(traceback.format_stack(frame)).rstrip()
        head = f'"{name}"{kind} ident={ident} native={_native(thread)}{looks}'
        found.append({"threadName": name, "stringifiedThreadInfo": f"{head}\n{text}\n"})
    return found


def process_name() -> str:
    """Tells this process from all others that live."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _native(thread: threading.Thread | None) -> int:
    return (thread.native_id or 0) if thread is not None else 0


def frames_of(frame: FrameType | None, depth: int = DEPTH) -> Stack:
    """A stack as names, the outermost first."""
    found: list[str] = []
    while frame is not None and len(found) < depth:
        module = frame.f_globals.get("__name__", "?")
        found.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(found))


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
        """Those of another one as well."""
        self.on_cpu.update(other.on_cpu)
        self.off_cpu.update(other.off_cpu)


class _QuickSwitches:
    """While somebody looks, threads give up the interpreter's lock soon."""

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
    """Look at threads again and again.

    Args:
        look: which threads (``threading.get_ident``) matter at this moment, and for whom. Asked before and after the
            stacks are taken: what has changed in between is not counted.
        count: looks.
        interval: seconds between them.
        depth: frames of a stack that are kept, the innermost ones.
        wanted: asked before each look; False ends it.
        sleep: waits.
        cpu_times: nanoseconds that each thread has used the processor; by default what the system says.

    Returns:
        By the keys of what ``look`` said.
    """
    times_of = cpu_times or thread_cpu_times
    found: dict[str, Samples] = {}
    before, at = times_of(), time.monotonic_ns()
    with _quick_switches:
        for _ in range(count):
            if not wanted():
                break
            sleep(interval)
            asked, frames = look(), sys._current_frames()
            stacks = {ident: frames_of(frames.get(ident), depth) for ident in asked}
            del frames
            still = look()
            after, now = times_of(), time.monotonic_ns()
            for ident, ones in asked.items():
                if ident not in still or list(still[ident]) != list(ones) or not stacks[ident]:
                    continue
                busy = after.get(ident, 0) - before.get(ident, 0) >= _BUSY_SHARE * (now - at)
                for one in ones:
                    if one.key is None:
                        continue
                    samples = found.setdefault(one.key, Samples())
                    if one.note:
                        samples.off_cpu[(one.note,)] += 1
                    else:
                        (samples.on_cpu if busy else samples.off_cpu)[stacks[ident]] += 1
            before, at = after, now
    return found


def other_threads() -> dict[int, list[ThreadSample]]:
    """All threads but the one that asks, by their names; for ``sample``."""
    own = threading.get_ident()
    return {one.ident: [ThreadSample(one.name)] for one in threading.enumerate() if one.ident not in (None, own)}


def thread_cpu_times() -> dict[int, int]:
    """Nanoseconds that each thread has used the processor, by ``threading.get_ident``; empty where Linux does not say.

    ``time.pthread_getcpuclockid`` is no way to it: it crashes if the thread has just ended.
    """
    found: dict[int, int] = {}
    for thread in threading.enumerate():
        try:
            text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii")
            found[thread.ident or 0] = int(text.split()[0])
        except (OSError, ValueError, IndexError):
            continue
    return found
