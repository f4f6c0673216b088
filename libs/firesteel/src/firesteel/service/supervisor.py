"""Keeps the services of a JobManager alive: each may die alone, and is started again.

The supervisor is one process without event loop and threads, which ends when the cluster does.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from firesteel.core.process import die_with_parent
from firesteel.service.process import EXIT_CONFIGURATION

logger = logging.getLogger(__name__)
SERVICES: Final = ("resourcemanager", "jobmaster", "dispatcher")
"""Services in the order of their start; they are stopped in reverse order."""
MOST_DEATHS: Final = 6
DEATH_WINDOW: Final = 120.0
"""The supervisor gives up when a service ends more than ``MOST_DEATHS`` times within so many seconds."""
_PAUSE: Final = 1.0
_LOOK: Final = 0.2
EXIT_TERMINATED: Final = 143
"""Exit code of a supervisor whose services were stopped by a signal."""
STOP_SECONDS: Final = 40.0
"""Seconds after which a service that was asked to stop is killed."""


@dataclass
class _Child:
    name: str
    command: Sequence[str]
    out: Path | None
    process: subprocess.Popen[bytes] | None = None
    deaths: deque[float] = field(default_factory=deque)
    start_at: float = 0.0
    starts: int = 0


class Supervisor:
    """Runs the services until the cluster ends, or a signal comes.

    Args:
        commands: service -> command line.
        out: service -> file of its output; a service without a file prints to this process's output.
        is_over: whether the cluster has ended by itself; services that have ended are not started again then.
        started: called in each look, until it returns that all services are up.
        while_open: a stream whose end of file stops the services as a signal does; None = there is none.
        watch: called in each look; a sentence that it returns ends the services, and ``run`` returns it.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        out: Mapping[str, Path],
        is_over: Callable[[], bool],
        started: Callable[[], bool] = lambda: True,
        while_open: IO[Any] | None = None,
        watch: Callable[[], str] = str,
    ) -> None:
        self._while_open, self._watch = while_open, watch
        self._children = [_Child(name, command, out.get(name)) for name, command in commands.items()]
        self._is_over, self._started = is_over, started
        self._signals = 0

    def run(self) -> str:
        """Run until the services have ended.

        Returns:
            The reason: ``OVER`` (the cluster has ended), ``STOPPED`` (by a signal), or a sentence that says what went
            wrong.
        """
        with self._woken():
            reason, is_up = "", False
            try:
                while not reason:
                    reason = STOPPED if self._signals or self._is_left() else self._look() or self._watch()
                    is_up = is_up or self._started()
                    if not reason:
                        self._pause()
            finally:
                self._end(reason == OVER)
        return reason

    @contextmanager
    def _woken(self) -> Iterator[None]:
        """Have signals wake ``_pause`` within this block: signals to this process, and the death of a child."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(read, False)
        handlers = {signal.SIGTERM: self._signalled, signal.SIGINT: self._signalled, signal.SIGCHLD: lambda *_: None}
        former_handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        former_wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        try:
            self._woken_by = read
            yield
        finally:
            signal.set_wakeup_fd(former_wakeup)
            for number, handler in former_handlers.items():
                signal.signal(number, handler)
            os.close(read)
            os.close(write)

    def _pause(self) -> None:
        """Wait for a signal, but not longer than the time between two looks."""
        if select.select([self._woken_by], [], [], _LOOK)[0]:
            os.read(self._woken_by, 1 << 16)

    def _is_left(self) -> bool:
        stream = self._while_open
        return stream is not None and bool(select.select([stream], [], [], 0)[0]) and not os.read(stream.fileno(), 1)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            logger.warning("a second signal: the services are killed")
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    child.process.kill()

    def _look(self) -> str:
        now = time.monotonic()
        for child in self._children:
            process = child.process
            if process is None:
                if now >= child.start_at:
                    self._start(child)
                continue
            code = process.poll()
            if code is None:
                continue
            if self._is_over():
                return OVER
            child.process = None
            child.deaths.append(now)
            while now - child.deaths[0] > DEATH_WINDOW:
                child.deaths.popleft()
            if code == EXIT_CONFIGURATION and child.starts == 1:
                return f"the {child.name} {REFUSED}"
            if len(child.deaths) > MOST_DEATHS:
                return f"the {child.name} has ended {len(child.deaths)} times within {DEATH_WINDOW:g} s"
            child.start_at = now + _PAUSE * (len(child.deaths) - 1)
            end = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            logger.warning("the %s has ended (%s); it is started again", child.name, end)
        return ""

    def _start(self, child: _Child) -> None:
        child.starts += 1
        parent = os.getpid()
        out = None if child.out is None else child.out.open("ab")
        try:
            child.process = subprocess.Popen(
                list(child.command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=None if out is None else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent),  # safe: no other thread can hold a lock at the fork
            )
        finally:
            if out is not None:
                out.close()
        logger.info("the %s is process %d", child.name, child.process.pid)

    def _end(self, over: bool) -> None:
        """End the services. Those of a cluster that is over end by themselves; others get a SIGTERM, one by one."""
        if over:
            self._wait(self._children, STOP_SECONDS)
        for child in reversed(self._children):
            if child.process is not None and child.process.poll() is None:
                child.process.terminate()
                self._wait([child], STOP_SECONDS)
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                logger.error("the %s did not end in time, and is killed", child.name)
                child.process.kill()
                child.process.wait()

    def _wait(self, children: Sequence[_Child], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for child in children:
            while child.process is not None and child.process.poll() is None and time.monotonic() < deadline:
                self._pause()


OVER: Final = "OVER"
REFUSED: Final = "refuses its configuration"
STOPPED: Final = "STOPPED"


def service_commands(
    config_directory: Path | None, definitions: Sequence[str], logs: Mapping[str, Path] | None = None
) -> dict[str, list[str]]:
    """The command lines of the services of a JobManager.

    Args:
        config_directory: directory of their ``config.yaml``.
        definitions: settings as ``key=value``, which override the file.
        logs: service -> file of its log; None: the services log to their output.
    """
    folder = [] if config_directory is None else ["--config-dir", str(config_directory)]
    words = [word for definition in definitions for word in ("-D", definition)]
    log_files = {name: ["--log-file", str(path)] for name, path in (logs or {}).items()}
    return {
        name: [sys.executable, "-P", "-m", f"firesteel_{name}", *folder, *words, *log_files.get(name, ())]
        for name in SERVICES
    }
