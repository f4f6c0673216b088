"""What outlives the JobMasters of a job: the numbers of attempts that they have used, and how the job ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from firesteel.core.backoff import pauses
from firesteel.core.errors import FencedError
from firesteel.ha.retrieval import Attempts
from firesteel.ha.services import Leadership
from firesteel.service.background import first_of, in_slices
from firesteel.service.lanes import Calls, Spawn
from firesteel.service.retries import FIRST_PAUSE, until_storage_answers
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.checkpoints.queue import in_a_thread
from firesteel_jobmaster.dispatcher import DispatcherReporter
from firesteel_jobmaster.event_door import EventDoor

logger = logging.getLogger(__name__)
LONGEST_PAUSE = 5.0
"""Seconds between two tries to write a note."""


@dataclass(frozen=True)
class JobAttempts:
    """Access to what outlives a JobMaster, for the one that leads now.

    Attributes:
        first: no JobMaster before has used this number or a larger one.
        note: remembers for the next JobMaster what may run. May block; raises ``FencedError`` where another one leads.
        epoch: of this JobMaster; larger than those of all before.
        former_taskmanagers: where tasks of the JobMasters before may run; None: not known.
        record_end: writes the archive of the job that has ended for whoever would start another JobMaster. As ``note``.
            None: no record outlives this process.
    """

    first: int
    note: Callable[[Attempts], None]
    epoch: int = 0
    former_taskmanagers: tuple[str, ...] | None = ()
    record_end: Callable[[Mapping[str, Any]], None] | None = None


def attempts_of(
    leadership: Leadership, takeover: int, record_end: Callable[[Mapping[str, Any]], None] | None = None
) -> JobAttempts:
    """Read the attempts for a JobMaster that leads from now on; the first number is noted before it can be used.

    Args:
        leadership: of the job.
        takeover: how many JobMasters of the job were lost, as far as the Dispatcher knows.
        record_end: see ``JobAttempts``.

    Raises:
        FencedError: it leads no more.
    """
    noted = leadership.attempts
    first = max(noted.first_unused, takeover)
    leadership.note_attempts(replace(noted, first_unused=first + 1))
    return JobAttempts(first, leadership.note_attempts, leadership.epoch, noted.taskmanagers, record_end)


class HandoverNotes:
    """Notes of a JobMaster for the one that follows: its attempts, before any of them runs, and the end of the job.

    The end is noted for the case that no Dispatcher is up: a job without checkpoints would run again from its first
    record otherwise, as soon as this process has gone. The slots go only when it is noted, or the Dispatcher has it.

    Args:
        attempts: write the notes; None: no JobMaster follows that could read them.
        door: of the core.
        dispatcher: hears of the end, too.
        spawn: runs what comes to an end by itself.
    """

    def __init__(
        self, attempts: JobAttempts | None, door: EventDoor, dispatcher: DispatcherReporter, spawn: Spawn
    ) -> None:
        self.attempts = attempts
        self._door, self._dispatcher, self._spawn = door, dispatcher, spawn
        self._calls = Calls("records of the job", spawn)
        self._held_back: list[do.Instruction] | None = None
        """What frees slots waits here while the end of the job is being noted; None: nothing has to wait."""
        self._end_is_begun = False
        """The end is being noted, or was."""
        self._hurried = asyncio.Event()
        self._ends = dispatcher.acknowledged, self._hurried, door.crashed
        """Once one of them is set, the end of the job need not be noted any more."""

    async def written(self) -> None:
        """Wait until all notes up to now are written, or are not needed any more."""
        await self._calls.done()

    def hurry(self) -> None:
        """The host stops: the end of the job is not waited for."""
        self._hurried.set()

    def note(self, attempts: Attempts) -> None:
        """Note what may run soon; ``written`` says when it may."""
        if self.attempts is not None:
            write, core, crashed = partial(self.attempts.note, attempts), self._door.core, self._door.crashed
            self._calls.add(lambda: self._write("numbers of attempts", write, lambda: not core.is_terminal, crashed))

    def report_end(self) -> None:
        """The job has ended: its record and the Dispatcher hear of that side by side, and then its slots go."""
        if not self._end_is_begun and self.attempts is not None and self.attempts.record_end is not None:
            self._held_back = []
        look = self._door.core.look()
        try:
            next(look)
        except StopIteration as end:
            self._ended(end.value)
        else:
            self._spawn(self._report_large_end(look), "end of the job")

    def holds_back(self, instruction: do.Instruction) -> bool:
        """Whether an instruction has to wait for the note of the end; then it is carried out by itself."""
        if self._held_back is None or not isinstance(instruction, do.ReleaseSlot | do.DisconnectResourceManager):
            return False
        self._held_back.append(instruction)
        return True

    def slots_held_back(self, taskmanager_id: str) -> tuple[str, ...]:
        """Slots of a TaskManager that the core has given up, and that are still held for the job."""
        releases = (i for i in self._held_back or () if isinstance(i, do.ReleaseSlot))
        return tuple(release.allocation_id for release in releases if release.taskmanager_id == taskmanager_id)

    async def _report_large_end(self, look: Generator[None, None, dict[str, Any]]) -> None:
        try:
            archive = await in_slices(look)
        except Exception as error:
            self._door.crash("looking at the end of the job", error)
        else:
            if not self._door.crashed.is_set():
                self._ended(archive)

    def _ended(self, archive: Mapping[str, Any]) -> None:
        self._dispatcher.end(archive)
        if self._held_back is not None and not self._end_is_begun:
            self._end_is_begun = True
            if self._spawn(self._let_go_when_noted(archive), "record of the end") is None:  # the host stops
                self._let_go()

    async def _let_go_when_noted(self, archive: Mapping[str, Any]) -> None:
        assert self.attempts is not None
        assert self.attempts.record_end is not None
        write = partial(self.attempts.record_end, archive)
        ends = self._ends
        self._calls.add(lambda: self._write("the end of the job", write, lambda: True, *ends))
        await first_of(self._calls.done(), *(end.wait() for end in ends))
        self._let_go()

    def _let_go(self) -> None:
        held_back, self._held_back = self._held_back or [], None
        self._door.perform_first(held_back, "the record of the end")

    async def _write(
        self, note_name: str, write: Callable[[], None], is_needed: Callable[[], bool], *ends: asyncio.Event
    ) -> None:
        """Write a note, until that works, or the note is not needed any more.

        Args:
            note_name: for logs.
            write: may block.
            is_needed: asked before each try.
            ends: once one of them is set, the note is not needed, and no further try is waited for.
        """

        async def write_if_needed() -> None:
            if is_needed() and not any(end.is_set() for end in ends):
                await in_a_thread(write)

        async def pause_or_end(seconds: float) -> None:
            await first_of(asyncio.sleep(seconds), *(end.wait() for end in ends))

        problem, waits = f"{note_name} can't be stored", pauses(FIRST_PAUSE, LONGEST_PAUSE)
        failures = Exception  # high-availability services are plug-ins
        try:
            await until_storage_answers(problem, write_if_needed, waits, failures, pause_or_end)
        except FencedError as error:
            if not self._dispatcher.acknowledged.is_set():
                self._door.handle(self._door.core.followed, str(error))
