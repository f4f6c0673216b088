"""``ExecutionConfig``: settings of one program, with PyFlink's methods and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ExecutionConfig"]


Switch = Callable[["ExecutionConfig"], "ExecutionConfig"]


def _kept(name: str, reason: str) -> tuple[Switch, Switch]:
    """Make the methods that turn a switch without any effect on and off."""

    def method(word: str, value: bool) -> Switch:
        def switch(self: ExecutionConfig) -> ExecutionConfig:
            setattr(self, f"_{name}", value)
            return self

        switch.__name__, switch.__doc__ = f"{word}_{name}", f"Kept for compatibility: {reason}."
        return switch

    return method("enable", True), method("disable", False)


class ExecutionConfig:
    """Settings of one program. Times are in milliseconds.

    The switches for Kryo, Avro and generic types choose among Java serialisers; they exist so that programs run
    unchanged, and have no effect.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        config = StreamExecutionEnvironment.get_execution_environment().get_config()
        print(config.set_parallelism(4).get_parallelism())
        ```

        ```text
        4
        ```
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self) -> None:
        self._parallelism = self.PARALLELISM_DEFAULT
        self._max_parallelism = -1
        self._auto_watermark_interval = 200
        self._latency_tracking_interval = 0
        self._task_cancellation_interval = 30_000
        self._task_cancellation_timeout = 180_000
        self._closure_cleaner = True
        self._force_kryo = False
        self._force_avro = False
        self._generic_types = True
        self._auto_generated_uids = True
        self._object_reuse = False
        self._snapshot_compression = False
        self._global_job_parameters: dict[str, str] = {}

    enable_closure_cleaner, disable_closure_cleaner = _kept("closure_cleaner", "functions are pickled as they are")

    def is_closure_cleaner_enabled(self) -> bool:
        """Returns whether the switch is on; default true."""
        return self._closure_cleaner

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Sets how often watermarks are made, in ms; 0 turns periodic watermarks off.

        Raises:
            ValueError: the interval is negative.
        """
        self._auto_watermark_interval = _at_least("auto watermark interval", interval, 0)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Returns the interval in ms; default 200."""
        return self._auto_watermark_interval

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Sets how often sources send latency markers, in ms; 0: never."""
        self._latency_tracking_interval = interval
        return self

    def get_latency_tracking_interval(self) -> int:
        """Returns the interval in ms; default 0 (never)."""
        return self._latency_tracking_interval

    def get_parallelism(self) -> int:
        """Returns the default parallelism; -1 if it was not set."""
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Sets the default parallelism of operators; -1 takes the environment's.

        Raises:
            ValueError: the parallelism is neither -1 nor at least 1.
        """
        if parallelism != self.PARALLELISM_DEFAULT:
            _at_least("parallelism", parallelism, 1)
        self._parallelism = parallelism
        return self

    def get_max_parallelism(self) -> int:
        """Returns the default maximum parallelism; -1 if it was not set."""
        return self._max_parallelism

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Sets the maximum parallelism, which is the number of key groups.

        Raises:
            ValueError: it is not between 1 and 32768.
        """
        if not 1 <= max_parallelism <= 32768:
            raise ValueError(f"The maximum parallelism lies between 1 and 32768, not {max_parallelism}.")
        self._max_parallelism = max_parallelism
        return self

    def get_task_cancellation_interval(self) -> int:
        """Returns the time between attempts to interrupt a cancelled task in ms; default 30000."""
        return self._task_cancellation_interval

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Sets the time between attempts to interrupt a cancelled task, in ms.

        Raises:
            ValueError: the interval is negative.
        """
        self._task_cancellation_interval = _at_least("task cancellation interval", interval, 0)
        return self

    def get_task_cancellation_timeout(self) -> int:
        """Returns the time after which a slot that does not end is killed, in ms; default 180000."""
        return self._task_cancellation_timeout

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Sets the time after which a slot that does not end is killed, in ms; 0 is never.

        Raises:
            ValueError: the timeout is negative.
        """
        self._task_cancellation_timeout = _at_least("task cancellation timeout", timeout, 0)
        return self

    enable_force_kryo, disable_force_kryo = _kept("force_kryo", "there is no Kryo")

    def is_force_kryo_enabled(self) -> bool:
        """Returns whether the switch is on; default false."""
        return self._force_kryo

    enable_generic_types, disable_generic_types = _kept("generic_types", "undeclared types are pickled")

    def has_generic_types_disabled(self) -> bool:
        """Returns whether the switch is on; default false."""
        return not self._generic_types

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Lets operators without a ``uid`` get an id made from their place in the graph (the default)."""
        self._auto_generated_uids = True
        return self

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Demands a ``uid`` from every operator."""
        self._auto_generated_uids = False
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Returns whether the switch is on; default true."""
        return self._auto_generated_uids

    enable_force_avro, disable_force_avro = _kept("force_avro", "Avro is no serialiser of records in flight")

    def is_force_avro_enabled(self) -> bool:
        """Returns whether the switch is on; default false."""
        return self._force_avro

    def enable_object_reuse(self) -> ExecutionConfig:
        """Passes records on without copies: no function may change a record that it has received or emitted."""
        self._object_reuse = True
        return self

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copies mutable records that are buffered or that several operators read (the default)."""
        self._object_reuse = False
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Returns whether the switch is on; default false."""
        return self._object_reuse

    def get_global_job_parameters(self) -> dict[str, str]:
        """Returns the parameters that every function can read."""
        return dict(self._global_job_parameters)

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> ExecutionConfig:
        """Sets parameters that every function can read; values become text."""
        self._global_job_parameters = {str(k): str(v) for k, v in global_job_parameters_dict.items()}
        return self

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Returns an empty dict: there is no Kryo."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Returns an empty list: there is no Kryo."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Returns an empty list: there are no Java classes."""
        return []

    def is_use_snapshot_compression(self) -> bool:
        """Returns whether the switch is on; default false."""
        return self._snapshot_compression

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Sets whether snapshots of state are compressed."""
        self._snapshot_compression = use_snapshot_compression
        return self

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, ExecutionConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._parallelism, self._max_parallelism, self._auto_watermark_interval))


def _at_least(name: str, value: int, least: int) -> int:
    if value < least:
        raise ValueError(f"The {name} is at least {least}, not {value}.")
    return value
