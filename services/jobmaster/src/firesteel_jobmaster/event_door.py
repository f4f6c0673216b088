"""The only way to a JobMaster's core: events go in one at a time, and what it decides is carried out in its order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, Protocol, TypeVar

from firesteel.core.errors import ProtocolError
from firesteel.protocol.message import RpcFault
from firesteel.service.lanes import Spawn
from firesteel.service.logs import log_fields
from firesteel_jobmaster import instructions as do
from firesteel_jobmaster.core import JobMasterCore
from firesteel_jobmaster.traces import JobTraces

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
PERFORMED_AT_ONCE = 200
"""Instructions that are carried out in one slice."""


class Performer(Protocol):
    """Carries out what the core decides."""

    def perform(self, instruction: do.Instruction) -> None:
        """Carry out an instruction, or begin to."""

    def hurry(self) -> None:
        """The host stops: wait for no peer that does not answer."""

    def fall_silent(self) -> None:
        """The JobMaster has crashed: say nothing more to anybody."""


class EventDoor:
    """Brings events to the core, and has its instructions carried out behind them.

    All is on the event loop of the host. An exception that nobody expected closes the door (``crashed``): what the core
    believes is not known to be true any more, so that another JobMaster has to take over. It does not end the job.

    Args:
        core: of the job.
        spawn: runs what is left to be carried out; a host that stops waits for it.
        traces: look at the job after each event; None = there are none.
    """

    performer: Performer  # it hands in events itself, and is set when it has been made with this door

    def __init__(self, core: JobMasterCore, spawn: Spawn, traces: JobTraces | None = None) -> None:
        self.core = core
        self._spawn, self._traces = spawn, traces
        self._queue: deque[tuple[do.Instruction, str]] = deque()
        """Instructions, and the events that they came from."""
        self._is_performing = False
        """A task is on its way that carries out what stands in the queue."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.changed = asyncio.Event()
        """Set after the next event, when another one takes its place."""
        self.followed = asyncio.Event()
        """Another JobMaster leads the job: this one has nothing to do any more."""
        self.crashed = asyncio.Event()
        """An exception that nobody expected has stopped this JobMaster."""
        self.crash_cause = ""
        """What raised the exception, to be read behind the words "the JobMaster"."""

    def handle(self, decide: Callable[P, list[do.Instruction]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have the core deal with an event, and do what it decides; nothing happens after a crash.

        Raises:
            ProtocolError, RpcFault: the message makes no sense; its sender has to hear of it.
        """
        if not self.crashed.is_set():  # the next JobMaster begins where everybody is known to be
            with self._event(decide.__name__) as instructions:
                instructions += decide(*args, **kwargs)

    def ask(
        self, decide: Callable[P, tuple[T, list[do.Instruction]]], otherwise: T, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like ``handle``, but returns the core's answer; ``otherwise``: what a JobMaster answers that has crashed."""
        answer = otherwise
        if not self.crashed.is_set():
            with self._event(decide.__name__) as instructions:
                answer, decided = decide(*args, **kwargs)
                instructions += decided
        return otherwise if self.crashed.is_set() else answer

    def perform_first(self, instructions: Sequence[do.Instruction], event: str) -> None:
        """Carry out instructions that were held back, before all others.

        Args:
            instructions: in their order.
            event: what they have waited for, for people.
        """
        if not self.crashed.is_set():
            self._queue.extendleft((instruction, event) for instruction in reversed(instructions))
            with self._event(event):
                pass  # the core has decided on them before

    def set_timer(self, name: str, seconds: float) -> None:
        """Have the core hear of ``timer_fired`` after so long, in place of a timer of this name."""
        self.clear_timer(name)
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._fire, name)

    def clear_timer(self, name: str) -> None:
        """Forget a timer, if it is set."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self.handle(self.core.timer_fired, name)

    def crash(self, doing: str, error: Exception) -> None:
        """A fault of ours: this JobMaster does nothing further, and above all it does not end the job."""
        logger.critical("the JobMaster fails while %s", doing, exc_info=error)
        logger.error("its last events were:\n%s", "\n".join(self.core.stimuli.lines()))
        self.crash_cause = f"failed while {doing}: {type(error).__qualname__}: {error}"
        self._queue.clear()
        for name in list(self._timers):
            self.clear_timer(name)
        self.performer.fall_silent()
        self.crashed.set()
        self.changed.set()

    @contextmanager
    def _event(self, name: str) -> Iterator[list[do.Instruction]]:
        """The core decides within, and adds its instructions; behind that they are carried out."""
        instructions: list[do.Instruction] = []
        with log_fields(job=self.core.graph.job_graph.job_id):
            try:
                yield instructions
            except (ProtocolError, RpcFault):  # a malformed message, or nobody's: its sender hears of it
                raise
            except Exception as error:
                self.crash(f"handling {name}", error)
                return
            self._queue.extend((instruction, name) for instruction in instructions)
            if not self._is_performing:
                self._perform_some()
                if self._queue:
                    self._is_performing = self._spawn(self._perform_others(), "instructions") is not None
                while self._queue and not self._is_performing:  # the host stops, and runs nothing further
                    self._perform_some()
        if self.crashed.is_set():
            return
        if self._traces is not None:
            self._traces.look()
        if self.core.is_followed:
            self.followed.set()
        self.changed.set()
        self.changed = asyncio.Event()

    def _perform_some(self) -> None:
        """Carry out what stands first, in the order in which it was decided."""
        for _ in range(PERFORMED_AT_ONCE):
            if not self._queue:
                return
            instruction, event = self._queue.popleft()
            try:
                self.performer.perform(instruction)
            except Exception as error:
                self.crash(f"carrying out {type(instruction).__name__} after {event}", error)

    async def _perform_others(self) -> None:
        """Carry out the rest in slices, between which the loop has its turn."""
        try:
            while self._queue:
                await asyncio.sleep(0)
                with log_fields(job=self.core.graph.job_graph.job_id):
                    self._perform_some()
        finally:
            self._is_performing = False
