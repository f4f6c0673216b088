"""How the processes of slots end: why one has died, and the killing of those that have to go."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from firesteel.config import Settings
from firesteel.core.call_pool import CallPool
from firesteel.core.clock import Clock
from firesteel.core.errors import FiresteelError
from firesteel.core.process import ProcessId, family_of, is_running, kill
from firesteel.core.text_output import ESCAPED
from firesteel.protocol import messages as m
from firesteel.protocol.slot_ends import LARGEST_CRASH, crash_path, describe_status, status_path
from firesteel_taskmanager import instructions as i

logger = logging.getLogger(__name__)
_DEATH_SECONDS = 2.0
"""How long the death of a killed process is waited for before its files are deleted."""
_STATUS_SECONDS = 0.5
"""How long the exit status of a process is waited for that has closed its control channel."""
_LOOK_SECONDS = 0.02
_LEFT_OVER = CallPool("left-over files", deadline=300.0)


class _Fleet(Protocol):
    async def cancel_launch(self, slot: m.SlotAvailable) -> str:
        """Have the fleet give up a slot; returns what it knows about the slot's end."""


class ProcessEnds:
    """Finds out how slot processes have died, kills those that have to go, and deletes what they leave.

    Args:
        taskmanager_id: named in messages.
        socket: path of the control socket; processes leave their exit status beside it.
        fleet: gives up slots, so that Spark does not start a killed process again.
        clock: bounds waits.
    """

    def __init__(self, taskmanager_id: str, socket: Path, fleet: _Fleet, clock: Clock) -> None:
        self._taskmanager_id, self._socket, self._fleet, self._clock = taskmanager_id, socket, fleet, clock

    async def investigate(self, lost: i.Investigate) -> str:
        """Why a process is lost, as shown to users."""
        slot = m.SlotAvailable(self._taskmanager_id, lost.slot_index, lost.allocation_id)
        pid = lost.pid
        why, death = await asyncio.gather(self._fleet.cancel_launch(slot), self._death_of(pid))
        if death:  # it says more than Spark's "crashed unexpectedly"
            return f"slot process {pid} on {self._taskmanager_id} {death}"
        return f"{lost.cause}: {why}" if why else lost.cause

    async def _death_of(self, pid: int) -> str:
        """How a process of a slot has died, in words, with the stacks of a crash; empty: nobody knows it in time."""
        status = status_path(self._socket, pid)
        deadline = self._clock.monotonic() + _STATUS_SECONDS
        while not status.exists() and self._clock.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            death = describe_status(int(status.read_text(encoding="ascii")))
        except (OSError, ValueError):
            return ""
        try:
            crash = crash_path(self._socket, pid).read_text(encoding="utf-8", errors=ESCAPED)
        except OSError:
            crash = ""
        return f"{death}\n{crash[:LARGEST_CRASH].rstrip()}" if crash else death

    async def kill(self, order: i.KillProcess) -> None:
        """Kill a slot's process, if it still runs, and all processes that it has started."""
        process = order.process
        if process is None or process.pid == os.getpid():
            return
        if is_running(process):
            slot = m.SlotAvailable(self._taskmanager_id, order.slot_index, order.allocation_id)
            await self._fleet.cancel_launch(slot)  # first, so that Spark does not start the process again
        self.kill_family(process)

    def kill_family(self, process: ProcessId) -> None:
        """Kill a process and all that it has started, at once."""
        family = family_of(process)
        kill(process)
        for member in family:
            kill(member)
        if family:
            logger.info(
                "process %d of a slot has left %d processes behind, which were killed", process.pid, len(family)
            )
        for path in (status_path(self._socket, process.pid), crash_path(self._socket, process.pid)):
            path.unlink(missing_ok=True)

    async def delete_files(self, order: i.DeleteFiles) -> None:
        """Delete files that a process has left, once it is dead: a living one could write them again."""
        deadline = self._clock.monotonic() + _DEATH_SECONDS
        while order.process is not None and is_running(order.process) and self._clock.monotonic() < deadline:
            await asyncio.sleep(0.01)
        remote = [path for path in order.paths if "://" in path]
        for path in order.paths:
            if path in remote:
                continue
            try:
                Path(path).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("%s could not be removed: %s", path, error)
        if remote:
            await _LEFT_OVER.call(_delete_remote, remote, Settings(dict(order.settings), "job"))


def _delete_remote(paths: Sequence[str], settings: Settings) -> None:
    """Remove files that a process has left on remote file systems, which may take long."""
    from firesteel.connectors.filesystems.file_system import FileSystems  # most jobs leave nothing there

    files = FileSystems(settings)
    for path in paths:
        try:
            files.of(path).remove_temporary(path)
        except (FiresteelError, OSError) as error:
            logger.warning("%s could not be removed: %s", path, error)
