"""The Spark executors of a TaskManager: the newest, on which slots start, and older ones that slots still use.

The ResourceManager asks for one after the other: when its driver is another one, or when the newest has ended. Running
slots stay where they are. An executor is a process of its own; whatever starts it is handed in.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from firesteel.core.backoff import pause_after
from firesteel.core.call_pool import CallPool
from firesteel.core.clock import Clock
from firesteel.core.errors import FiresteelError
from firesteel.protocol.messages import ExecutorLost, ExecutorSpec

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
"""Seconds between two looks at a running executor."""
STOP_GRACE: Final = 3.0
"""Seconds that an executor has to end in order."""
SHORT_LIFE: Final = 60.0
"""An executor that ended sooner counts as a failed start: the next one is asked for later."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0
_EXECUTORS: Final = CallPool("executors", threads=8, deadline=None)
"""Starts executors, without a deadline: an executor that came after it would have no owner.

Stops have a time limit of their own.
"""


class RunningExecutor(Protocol):
    """A running executor, as ``firesteel.spark.executor.ExecutorProcess``. Its methods may block."""

    @property
    def pid(self) -> int: ...

    def is_running(self) -> bool:
        """Whether the executor runs; does not block."""

    def exit_reason(self) -> str: ...

    def log_tail(self) -> str:
        """The last lines of the executor's log."""

    def stop(self, grace: float) -> None:
        """End the executor, by force after ``grace`` seconds, and remove its files, even if it has ended by itself."""


ExecutorFactory = Callable[[ExecutorSpec], RunningExecutor]
"""Starts an executor; may block; raises ``FleetError`` or ``OSError`` if it can't."""


class ExecutorPhase(Enum):
    """Life of one executor process."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"


@dataclass
class _Entry:
    spec: ExecutorSpec
    since: float
    starting: asyncio.Task[RunningExecutor]
    phase: ExecutorPhase = ExecutorPhase.STARTING
    executor: RunningExecutor | None = None


class FixedExecutor:
    """The only executor of embedded mode: the Spark driver, which is not started here."""

    def __init__(self, executor_id: str) -> None:
        self.newest: str | None = executor_id

    def knows(self, executor_id: str) -> bool:
        """Whether an id is that of this executor."""
        return executor_id == self.newest


class ExecutorSupervisor:
    """Starts, watches and ends executors.

    Args:
        taskmanager_id: of this TaskManager.
        factory: starts an executor; called in a thread.
        clock: measures how long executors live.
        spawn: runs a watch in the background.
        report: tells the ResourceManager that the newest executor is lost and another one is needed.
        in_use: ids of the executors that slots use, and whether slots are on their way whose executor is not known.
    """

    def __init__(
        self,
        taskmanager_id: str,
        factory: ExecutorFactory,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        report: Callable[[ExecutorLost], Awaitable[None]],
        in_use: Callable[[], tuple[Collection[str], bool]],
    ) -> None:
        self._taskmanager_id, self._factory, self._clock = taskmanager_id, factory, clock
        self._spawn, self._report, self._in_use = spawn, report, in_use
        self._entries: dict[tuple[str, str], _Entry] = {}
        """(application, executor id) -> executor, oldest first."""
        self._newest: tuple[str, str] | None = None
        self._failures = 0
        """Executors in a row that have lived shorter than ``SHORT_LIFE``."""
        self._stopping = False

    @property
    def newest(self) -> str | None:
        """Id of the executor on which slots start; None before the first, and while another one is awaited."""
        entry = self._entries.get(self._newest) if self._newest is not None else None
        return entry.spec.executor_id if entry is not None else None

    def knows(self, executor_id: str) -> bool:
        """Whether an executor of this id runs, or starts."""
        return any(entry.spec.executor_id == executor_id for entry in self._entries.values())

    def pids(self) -> list[int]:
        """Process ids of the executors that run."""
        return [entry.executor.pid for entry in self._entries.values() if entry.executor is not None]

    def start(self, spec: ExecutorSpec) -> None:
        """Start another executor in the background. A repeated request changes nothing."""
        key = (spec.app_id, spec.executor_id)
        if key in self._entries or self._stopping:
            return
        logger.info("executor %s of application %s is started", spec.executor_id, spec.app_id)
        starting = asyncio.get_running_loop().create_task(_EXECUTORS.call(self._factory, spec))
        entry = self._entries[key] = _Entry(spec, self._clock.monotonic(), starting)
        self._newest = key
        self._spawn(self._run(key, entry), f"executor {spec.executor_id}")

    async def stop(self) -> None:
        """End all executors, side by side; none is started any more."""
        self._stopping = True
        entries = list(self._entries.values())
        self._entries.clear()
        if entries:
            await asyncio.wait({entry.starting for entry in entries})
        started = [e.starting.result() for e in entries if not e.starting.cancelled() and not e.starting.exception()]
        await asyncio.gather(*(_EXECUTORS.call(executor.stop, STOP_GRACE) for executor in started))

    async def _run(self, key: tuple[str, str], entry: _Entry) -> None:
        """Look after an executor from its start to its end."""
        cause = await self._start(entry) or await self._watch(key, entry)
        if self._entries.pop(key, None) is None:  # all are being ended
            return
        lived = self._clock.monotonic() - entry.since
        if entry.executor is not None:
            await _EXECUTORS.call(entry.executor.stop, STOP_GRACE)  # whatever it left: workers, files
        if self._newest != key:
            logger.info("executor %s, an older one, is gone: %s", entry.spec.executor_id, cause)
            return
        self._failures = self._failures + 1 if lived < SHORT_LIFE else 0
        pause = pause_after(self._failures, FIRST_PAUSE, LONGEST_PAUSE)
        logger.error("executor %s: %s; another one is asked for in %.0f s", entry.spec.executor_id, cause, pause)
        await asyncio.sleep(pause)
        if self._newest == key and not self._stopping:
            await self._report(ExecutorLost(self._taskmanager_id, entry.spec.executor_id, cause))

    async def _start(self, entry: _Entry) -> str:
        """Wait until an executor is started; returns why that has failed, or nothing."""
        try:
            entry.executor = await asyncio.shield(entry.starting)
        except (FiresteelError, OSError, MemoryError) as error:
            return f"it could not be started: {_explain(error)}"
        entry.phase = ExecutorPhase.RUNNING
        return ""

    async def _watch(self, key: tuple[str, str], entry: _Entry) -> str:
        """Wait until an executor has ended; returns how it has ended."""
        executor = entry.executor
        assert executor is not None
        while executor.is_running():
            await asyncio.sleep(LOOK_SECONDS)
            if self._newest != key and self._is_unused(entry):
                logger.info("executor %s: a newer one has its place, and no slot uses it", entry.spec.executor_id)
                entry.phase = ExecutorPhase.STOPPING
                await _EXECUTORS.call(executor.stop, STOP_GRACE)
        if entry.phase is ExecutorPhase.STOPPING:
            return "it was ended"
        tail = await _EXECUTORS.call(executor.log_tail)
        if tail:
            logger.warning("executor %s, the end of its log:\n%s", entry.spec.executor_id, tail)
        return f"it ended: {executor.exit_reason()}"

    def _is_unused(self, entry: _Entry) -> bool:
        used, some_are_coming = self._in_use()
        return not some_are_coming and entry.spec.executor_id not in used


def _explain(error: Exception) -> str:
    """An error in words, with advice where the machine is at its limits."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return f"{error}: the machine has no memory left; give the TaskManager less, or end something else"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error}: the disk is full; make room, or choose another place (firesteel.run.directory)"
    return str(error) or type(error).__name__
