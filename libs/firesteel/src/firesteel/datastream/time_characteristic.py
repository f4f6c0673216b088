"""``TimeCharacteristic``, under PyFlink 1.x's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """Which time a job goes by; windows and timers say it themselves, so it sets the interval of watermarks only.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment, TimeCharacteristic

        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_stream_time_characteristic(TimeCharacteristic.EventTime)
        ```
    """

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
