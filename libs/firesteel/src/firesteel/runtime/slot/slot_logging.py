"""Forwards log records of a slot to the TaskManager, rate-limited for each place in the code."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.forks import ForkAware, tell_of_forks

WINDOW_SECONDS: Final = 10.0
BURST: Final = 50
"""Records of one place in the code that pass in each window."""
_LONGEST: Final = 16_000
"""Characters at which a message is cut."""
Key = tuple[str, int, str, int]


class LogRateLimiter:
    """Lets ``burst`` messages of a key pass in each window of time, and counts the others. Thread-safe."""

    def __init__(self, clock: Clock, burst: int = BURST, window: float = WINDOW_SECONDS) -> None:
        self._clock, self._burst, self._window = clock, burst, window
        self._windows: dict[Key, list[float]] = {}  # key -> [start, let through, suppressed]
        self._lock = threading.Lock()

    def admit(self, key: Key) -> tuple[bool, int]:
        """Whether a message may pass, and how many of its key were suppressed since the last one that passed."""
        now = self._clock.monotonic()
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window[0] >= self._window:
                suppressed = int(window[2]) if window else 0
                self._windows[key] = [now, 1, 0]
                return True, suppressed
            if window[1] < self._burst:
                window[1] += 1
                return True, 0
            window[2] += 1
            return False, 0

    def drain(self) -> list[tuple[Key, int]]:
        """Forget all keys; returns those with suppressed messages that were not reported, with their counts."""
        with self._lock:
            unreported = [(key, int(window[2])) for key, window in self._windows.items() if window[2]]
            self._windows.clear()
        return unreported


class SlotLogHandler(logging.Handler, ForkAware):
    """Sends log records as ``log`` messages.

    Args:
        send: sends a message over the control channel.
        clock: clock of the rate limit.
        context: returns fields that name the running task (``execution_id`` …); called on the thread that logs.
    """

    def __init__(
        self, send: Callable[[dict[str, Any]], None], clock: Clock, context: Callable[[], dict[str, Any]]
    ) -> None:
        super().__init__()
        self._send, self._context = send, context
        self._limiter = LogRateLimiter(clock)
        tell_of_forks(self)

    def after_fork_in_child(self) -> None:
        """Log to standard error in a forked child, which has no connection to the TaskManager."""
        root = logging.getLogger()
        root.handlers[:] = [logging.StreamHandler() if handler is self else handler for handler in root.handlers]

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, or count it as suppressed."""
        try:
            key = (record.name, record.levelno, record.pathname, record.lineno)
            passes, suppressed = self._limiter.admit(key)
            if suppressed:
                self._forward(record.levelname, record.name, _notice(record.pathname, record.lineno, suppressed))
            if passes:
                text = record.getMessage()
                if record.exc_info and record.exc_info[1] is not None:
                    text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
                self._forward(record.levelname, record.name, text)
        except Exception:  # a record that can't be formatted must not hurt the program
            self._forward("ERROR", record.name, f"a log message could not be formatted: {record.msg!r:.200}")

    def _forward(self, level: str, name: str, text: str) -> None:
        self._send({"type": "log", "level": level, "logger": name, "message": text[:_LONGEST], **self._context()})

    def close(self) -> None:
        """Report the records that were suppressed last."""
        for (name, level, path, line), suppressed in self._limiter.drain():
            self._forward(logging.getLevelName(level), name, _notice(path, line, suppressed))
        super().close()


def _notice(path: str, line: int, suppressed: int) -> str:
    return f"{suppressed} more messages from {path}:{line} were suppressed"
