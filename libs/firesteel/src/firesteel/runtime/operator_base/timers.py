"""Timers of event time and of processing time. They are in two queues of the state backend (``state/backend.py``)."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

from firesteel.core.clock import Clock
from firesteel.core.errors import ProgramError
from firesteel.runtime.records.batch import MAX_WATERMARK, MIN_WATERMARK
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.keys import NO_KEY

logger = logging.getLogger(__name__)

EVENT: Final = "event-time"
PROCESSING: Final = "processing-time"
"""Names of the queues."""


class InternalTimerService(ABC):
    """Timers of one operator. The key is always the operator's current one (``operator.keyed.key``).

    A timer is identified by time domain, key, namespace and timestamp; registered twice, it fires once. Timers of both
    domains fire in the order of their timestamps, and those of one timestamp in the order of registration.
    """

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's event time; ``MIN_WATERMARK`` in the beginning. Does not change inside a batch."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """Epoch milliseconds of the injected clock."""

    @abstractmethod
    def register_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Register a timer; one that the watermark has passed already fires with the next watermark."""

    @abstractmethod
    def delete_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Forget the timer; nothing happens if there is none."""

    @abstractmethod
    def register_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Register a timer that fires when the clock reaches this time."""

    @abstractmethod
    def delete_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        """Forget the timer; nothing happens if there is none."""


class KeyedTimerService(InternalTimerService):
    """Timers in the state backend.

    Args:
        keyed: state backend, with the current key and the timers.
        clock: clock of processing time.
        on_register: called when a processing-time timer is registered, with its timestamp.

    Attributes:
        event, processing: the queues of timers.
        watermark: the current watermark; set by the operator before timers fire.
        quiesced: whether timers that are registered now are ignored. Set in batch mode while the timers at the end of a
            key fire, where a timer that registers the next one would never end; Flink's
            ``BatchExecutionInternalTimeService`` ignores them as well.
    """

    def __init__(
        self,
        keyed: KeyedStateBackend,
        clock: Clock,
        on_register: Callable[[int], None] = lambda timestamp: None,
    ) -> None:
        self.event, self.processing = keyed.timers(EVENT), keyed.timers(PROCESSING)
        self.watermark = MIN_WATERMARK
        self.quiesced = self._has_warned = False
        self._keyed, self._clock, self._on_register = keyed, clock, on_register

    @override
    def current_watermark(self) -> int:
        return self.watermark

    @override
    def current_processing_time(self) -> int:
        return self._clock.epoch_ms()

    @override
    def register_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        if self.quiesced:
            self._ignore(timestamp)
            return
        self.event.add(_checked(timestamp), self._key(), namespace)

    @override
    def delete_event_time_timer(self, namespace: Any, timestamp: int) -> None:
        self.event.discard(_checked(timestamp), self._key(), namespace)

    @override
    def register_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        if self.quiesced:
            self._ignore(timestamp)
            return
        if self.processing.add(_checked(timestamp), self._key(), namespace):
            self._on_register(timestamp)

    @override
    def delete_processing_time_timer(self, namespace: Any, timestamp: int) -> None:
        self.processing.discard(_checked(timestamp), self._key(), namespace)

    def _ignore(self, timestamp: int) -> None:
        _checked(timestamp)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "The input of a key has ended: timers that are set by timers are ignored in batch mode, as in Flink"
            )

    def _key(self) -> Any:
        key = self._keyed.key
        if key is NO_KEY:
            raise ProgramError(
                "a timer was set or deleted while no record was being processed: timers belong to the key of a record; "
                "use them in process_element() and on_timer(), not in open() or close()"
            )
        return key


def _checked(timestamp: int) -> int:
    if timestamp.__class__ is int and MIN_WATERMARK <= timestamp <= MAX_WATERMARK:
        return timestamp
    if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
        raise ProgramError(
            f"the timestamp of a timer is an int of milliseconds since 1970-01-01 UTC, not {timestamp!r} "
            f"({type(timestamp).__name__})"
        )
    whole = timestamp.__index__()
    if not MIN_WATERMARK <= whole <= MAX_WATERMARK:
        raise ProgramError(f"the timestamp of a timer has to fit into 64 bits; {whole} does not")
    return whole
