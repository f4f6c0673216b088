"""Time as functions see it: the timer service and the two time domains. PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

__all__ = ["TimeDomain", "TimerService"]


class TimeDomain(Enum):
    """The time that a timer follows.

    Examples:
        ```python
        from firesteel.datastream import KeyedProcessFunction, TimeDomain


        class Remind(KeyedProcessFunction):
            def process_element(self, value, ctx):
                ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1000)

            def on_timer(self, timestamp, ctx):
                yield ctx.time_domain() is TimeDomain.EVENT_TIME
        ```
    """

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Reads the time and sets timers for the current key; from ``ctx.timer_service()``.

    All times are milliseconds since 1970-01-01 UTC. A timer that is set twice for the same time fires once. Timers need
    a keyed stream: elsewhere setting and deleting them raises ``ProgramError``.

    Examples:
        ```python
        from firesteel.common import TimestampAssigner, WatermarkStrategy
        from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment


        class BySecond(TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1] * 1000


        class Remind(KeyedProcessFunction):
            def process_element(self, value, ctx):
                ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10_000)

            def on_timer(self, timestamp, ctx):
                yield ctx.get_current_key(), timestamp // 1000


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(BySecond())
        orders = env.from_collection([("anna", 5)]).assign_timestamps_and_watermarks(strategy)
        print(list(orders.key_by(lambda order: order[0]).process(Remind()).execute_and_collect()))
        ```

        ```text
        [('anna', 15)]
        ```
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Returns the processing time: that of the machine's clock."""

    @abstractmethod
    def current_watermark(self) -> int:
        """Returns the watermark: the event time reached so far; -2**63 before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Sets a timer: ``on_timer`` is called for the current key when the clock has reached this time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Sets a timer: ``on_timer`` is called for the current key when the watermark passes this time."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Deletes the current key's timer for this time, if there is one."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Deletes the current key's timer for this time, if there is one."""
