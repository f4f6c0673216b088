"""The registration at the ResourceManager as decisions: when to register, when to wait, when to give up. Pure.

JobMasters and TaskManagers register, and register again after each loss. Their work goes on meanwhile. While a job
needs the registration, it is tried without a limit, else until ``taskmanager.registration.timeout`` is over.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from firesteel.config import Settings
from firesteel.config.options import (
    HEARTBEAT_TIMEOUT,
    REGISTRATION_ERROR_DELAY,
    REGISTRATION_INITIAL_TIMEOUT,
    REGISTRATION_MAX_TIMEOUT,
    REGISTRATION_REFUSED_DELAY,
)
from firesteel.core.backoff import pause_after
from firesteel.core.clock import Clock
from firesteel.core.errors import IllegalTransitionError
from firesteel.service.heartbeat import REGISTERS_AGAIN, HeartbeatMonitor

logger = logging.getLogger(__name__)
_PEER = "resourcemanager"


class BondState(Enum):
    """States of a registration."""

    WAITING = "WAITING"
    """The service is not registered; the next try is due later."""
    CALLING = "CALLING"
    """A registration is on its way."""
    REGISTERED = "REGISTERED"
    GIVEN_UP = "GIVEN_UP"


MOVES: Final[Mapping[BondState, frozenset[BondState]]] = {
    BondState.WAITING: frozenset({BondState.CALLING}),
    BondState.CALLING: frozenset({BondState.REGISTERED, BondState.WAITING, BondState.GIVEN_UP}),
    BondState.REGISTERED: frozenset({BondState.WAITING}),
    BondState.GIVEN_UP: frozenset(),
}


class RegistrationFailure(Enum):
    """How a registration failed; this decides how long to wait."""

    NONE = "no answer"
    ERROR = "an error"
    REFUSED = "a refusal"


@dataclass(frozen=True)
class Register:
    """Call the ResourceManager; answer by ``accepted`` or ``failed``."""


@dataclass(frozen=True)
class EndProcess:
    """The ResourceManager could not be reached in time: the TaskManager ends."""

    cause: str


@dataclass(frozen=True)
class RegistrationSettings:
    """Pauses and timeouts of a registration, in seconds.

    Attributes:
        first_pause, longest_pause: ``cluster.registration.initial-timeout`` and ``max-timeout``: pauses after a try
            without an answer.
        error_pause: ``cluster.registration.error-delay``.
        refused_pause: ``cluster.registration.refused-registration-delay``.
        timeout: time for which registering is tried where no job needs it.
        heartbeat_timeout: ``heartbeat.timeout``.
        failures: failed heartbeats in a row that lose the registration; 0: failed heartbeats do not count.
    """

    first_pause: float = 0.1
    longest_pause: float = 30.0
    error_pause: float = 10.0
    refused_pause: float = 30.0
    timeout: float = 300.0
    heartbeat_timeout: float = 50.0
    failures: int = 0

    @classmethod
    def from_settings(cls, settings: Settings, timeout: float = math.inf, failures: int = 0) -> RegistrationSettings:
        """Read the options.

        Raises:
            ConfigurationError: one has a bad value.
        """
        return cls(
            first_pause=settings.get(REGISTRATION_INITIAL_TIMEOUT).total_seconds(),
            longest_pause=settings.get(REGISTRATION_MAX_TIMEOUT).total_seconds(),
            error_pause=settings.get(REGISTRATION_ERROR_DELAY).total_seconds(),
            refused_pause=settings.get(REGISTRATION_REFUSED_DELAY).total_seconds(),
            timeout=timeout,
            heartbeat_timeout=settings.get(HEARTBEAT_TIMEOUT).total_seconds(),
            failures=failures,
        )


class Registration:
    """The registration of one process; begins with the first ``tick``.

    Args:
        settings: pauses and timeouts.
        clock: monotonic time.
    """

    def __init__(self, settings: RegistrationSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self.state = BondState.WAITING
        self.token = ""
        """Fencing token of the ResourceManager, which each call to it carries."""
        self._pause = settings.first_pause
        self._due = self._unregistered_since = clock.monotonic()
        self._monitor: HeartbeatMonitor | None = None
        self._tick_seconds = 1.0
        self._patience = settings.longest_pause
        self._moved = False
        """Another leader became known while a registration was on its way."""
        self._lost_at_once = 0
        """Losses in a row before any sign of life."""

    @property
    def is_registered(self) -> bool:
        """Whether the ResourceManager knows this process, as far as this process knows."""
        return self.state is BondState.REGISTERED

    @property
    def next_tick(self) -> float | None:
        """Monotonic time at which ``tick`` has to be called next; None: not before another event."""
        now = self._clock.monotonic()
        if self.state is BondState.WAITING:
            return max(now, self._due)
        return now + self._tick_seconds if self.state is BondState.REGISTERED else None

    def tick(self) -> list[Register]:
        if self._monitor is not None and self._monitor.tick():
            self.lost("it gives no sign of life")
        if self.state is BondState.WAITING and self._clock.monotonic() >= self._due:
            self._move(BondState.CALLING)
            return [Register()]
        return []

    def accepted(self, token: str, heartbeat_interval: float) -> None:
        """The ResourceManager has accepted the registration, and will send heartbeats."""
        self._move(BondState.REGISTERED)
        self._moved = False
        self.token, self._pause = token, self._settings.first_pause
        silence = self._settings.heartbeat_timeout
        if heartbeat_interval > 0:
            self._patience = REGISTERS_AGAIN * heartbeat_interval
            silence = min(silence, self._patience)
        self._monitor = HeartbeatMonitor(self._clock, silence, failure_threshold=self._settings.failures)
        self._tick_seconds = self._monitor.tick_seconds
        self._monitor.watch(_PEER)

    def failed(self, answer: RegistrationFailure, cause: str, in_use: bool) -> list[EndProcess]:
        """A registration failed.

        Args:
            answer: kind of the failure.
            cause: of the failure, for logs.
            in_use: whether a job uses a slot of this process; registering is tried without a limit then.
        """
        now, end = self._clock.monotonic(), self._unregistered_since + self._settings.timeout
        if now >= end and not in_use:
            self._move(BondState.GIVEN_UP)
            seconds = self._settings.timeout
            text = f"could not register at the ResourceManager for {seconds:g} s (taskmanager.registration.timeout)"
            return [EndProcess(f"{text}; the last try: {cause}")]
        match answer:
            case RegistrationFailure.NONE:
                pause, self._pause = self._pause, min(2 * self._pause, self._settings.longest_pause)
            case RegistrationFailure.ERROR:
                pause = self._settings.error_pause
            case RegistrationFailure.REFUSED:
                pause = self._settings.refused_pause
        if in_use and answer is not RegistrationFailure.REFUSED:
            # A new ResourceManager waits so long for reports of slots before it believes that they are gone.
            pause = min(pause, self._patience)
        self._due = min(now + pause, end) if now < end else now + pause
        if self._moved:
            self._due, self._moved = now, False
        self._move(BondState.WAITING)
        level = logging.WARNING if answer is RegistrationFailure.NONE else logging.ERROR
        logger.log(level, "not registered at the ResourceManager, again in %.1f s: %s", self._due - now, cause)
        return []

    def heard(self) -> None:
        """The ResourceManager gave a sign of life."""
        if self._monitor is not None:
            self._monitor.heard(_PEER)
            self._lost_at_once = 0

    def unanswered(self) -> None:
        """A heartbeat did not reach the ResourceManager."""
        if self._monitor is not None:
            self._monitor.failed(_PEER)

    def lost(self, cause: str) -> None:
        """The registration is lost: register at once; losses in a row make the pauses longer."""
        if self.state is BondState.REGISTERED:
            logger.warning("the ResourceManager is lost (%s); registering again", cause)
            self._monitor = None
            self._unregistered_since = self._clock.monotonic()
            again = pause_after(self._lost_at_once, self._settings.first_pause, self._settings.longest_pause)
            self._due = self._unregistered_since + again
            self._lost_at_once += 1
            self._move(BondState.WAITING)

    def leads_elsewhere(self, cause: str) -> None:
        """Another ResourceManager leads: register there at once, whatever pause the former one's silence has made."""
        self._lost_at_once = 0
        if self.state is BondState.WAITING:
            self._due, self._pause = self._clock.monotonic(), self._settings.first_pause
        self._moved = self.state is BondState.CALLING
        self.lost(cause)

    def _move(self, to: BondState) -> None:
        if to not in MOVES[self.state]:
            raise IllegalTransitionError(f"registration: no move {self.state.name} -> {to.name}")
        self.state = to
