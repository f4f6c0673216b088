"""The timer service as functions get it, with keys and without."""

from __future__ import annotations

from typing import NoReturn

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.functions import timerservice
from firesteel.runtime.operator_base.context import Stamp
from firesteel.runtime.operator_base.timers import InternalTimerService


class KeyTimers(timerservice.TimerService):
    """What functions on keyed streams get: timers of the current key, without a namespace."""

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    def current_processing_time(self) -> int:
        """See the base class."""
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        """See the base class."""
        return self._timers.current_watermark()

    def register_processing_time_timer(self, timestamp: int) -> None:
        """See the base class."""
        self._timers.register_processing_time_timer(None, timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        """See the base class."""
        self._timers.register_event_time_timer(None, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """See the base class."""
        self._timers.delete_processing_time_timer(None, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        """See the base class."""
        self._timers.delete_event_time_timer(None, timestamp)


class TimeOnly(timerservice.TimerService):
    """What functions without keys get: they may read the time, and set no timers."""

    def __init__(self, stamp: Stamp, clock: Clock, operator: str) -> None:
        self._stamp, self._clock, self._operator = stamp, clock, operator

    def current_processing_time(self) -> int:
        """See the base class."""
        return self._clock.epoch_ms()

    def current_watermark(self) -> int:
        """See the base class."""
        return self._stamp.watermark

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{what} timers is only supported on keyed streams, in a KeyedProcessFunction or KeyedCoProcessFunction; "
            f"the function of operator {self._operator!r} is neither: call key_by() before it, and derive from one"
        )

    def register_processing_time_timer(self, timestamp: int) -> NoReturn:
        """Refused: ProgramError."""
        self._refuse("Setting")

    def register_event_time_timer(self, timestamp: int) -> NoReturn:
        """Refused: ProgramError."""
        self._refuse("Setting")

    def delete_processing_time_timer(self, timestamp: int) -> NoReturn:
        """Refused: ProgramError."""
        self._refuse("Deleting")

    def delete_event_time_timer(self, timestamp: int) -> NoReturn:
        """Refused: ProgramError."""
        self._refuse("Deleting")
