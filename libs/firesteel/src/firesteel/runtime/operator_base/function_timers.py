"""The timer services that user functions get, on keyed streams and on others."""

from __future__ import annotations

from typing import NoReturn

from typing_extensions import override

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.functions import timerservice
from firesteel.runtime.operator_base.context import Stamp
from firesteel.runtime.operator_base.timers import InternalTimerService


class KeyTimers(timerservice.TimerService):
    """The timer service of functions on keyed streams: timers of the current key, without a namespace."""

    def __init__(self, timers: InternalTimerService) -> None:
        self._timers = timers

    @override
    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    @override
    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    @override
    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register_processing_time_timer(None, timestamp)

    @override
    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event_time_timer(None, timestamp)

    @override
    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing_time_timer(None, timestamp)

    @override
    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_time_timer(None, timestamp)


class TimeOnly(timerservice.TimerService):
    """The timer service of functions without keys: they may read the time; setting timers raises ``ProgramError``."""

    def __init__(self, stamp: Stamp, clock: Clock, operator: str) -> None:
        self._stamp, self._clock, self._operator = stamp, clock, operator

    @override
    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()

    @override
    def current_watermark(self) -> int:
        return self._stamp.watermark

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f"{what} timers is only supported on keyed streams, in a KeyedProcessFunction or KeyedCoProcessFunction; "
            f"the function of operator {self._operator!r} is neither: call key_by() before it, and derive from one"
        )

    @override
    def register_processing_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse("Setting")

    @override
    def register_event_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse("Setting")

    @override
    def delete_processing_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse("Deleting")

    @override
    def delete_event_time_timer(self, timestamp: int) -> NoReturn:
        self._refuse("Deleting")
