"""Time-to-live of state: when values expire, and how expired values are cleaned up. PyFlink's names.

The time is the processing time of the task that holds the state. A value expires ``ttl`` after its last write (or its
last read or write); each element of a list or map expires by itself. Expired values are removed when they are accessed,
and in the background.
"""

from __future__ import annotations

from abc import ABC
from enum import Enum
from typing import Any, Final

from firesteel.common.time import Span, Time, whole_millis

__all__ = ["StateTtlConfig"]

_DEFAULT_CLEANUP_SIZE: Final = 5


class _UpdateType(Enum):
    """Which accesses extend the life of a value."""

    Disabled = 0
    """Values never expire."""
    OnCreateAndWrite = 1
    """Each write starts the time-to-live again."""
    OnReadAndWrite = 2
    """Each read and each write starts the time-to-live again."""


class _StateVisibility(Enum):
    """Whether expired values may still be returned."""

    ReturnExpiredIfNotCleanedUp = 0
    """An expired value is returned once more if it has not been cleaned up before."""
    NeverReturnExpired = 1
    """An expired value is never returned."""


class _TtlTimeCharacteristic(Enum):
    """The clock by which values expire."""

    ProcessingTime = 0


class _CleanupStrategies:
    """How expired values are removed that are never accessed again.

    Args:
        strategies: strategies that the program has chosen, by kind.
        is_cleanup_in_background: whether the default strategies apply where none was chosen.
    """

    class Strategies(Enum):
        """When expired entries are removed."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    class CleanupStrategy(ABC):  # noqa: B024 - PyFlink's root class
        """Root class of the settings of a clean-up strategy."""

        def _key(self) -> tuple[Any, ...]:
            return ()

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and self._key() == other._key()

        def __hash__(self) -> int:
            return hash((type(self).__name__, *self._key()))

    class EmptyCleanupStrategy(CleanupStrategy):
        """A clean-up strategy without settings of its own."""

    class IncrementalCleanupStrategy(CleanupStrategy):
        """Each access to the state checks some entries and removes those that have expired.

        Args:
            cleanup_size: number of entries to check at most.
            run_cleanup_for_every_record: also check entries for records that do not access the state.

        Raises:
            ValueError: the size is not positive.
        """

        def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
            if isinstance(cleanup_size, bool) or not isinstance(cleanup_size, int):
                raise TypeError(f"cleanup_size is an int, not {type(cleanup_size).__name__}")
            if cleanup_size <= 0:
                raise ValueError(f"cleanup_size must be at least 1, not {cleanup_size}")
            self._cleanup_size = cleanup_size
            self._run_cleanup_for_every_record = bool(run_cleanup_for_every_record)

        def get_cleanup_size(self) -> int:
            """Returns the number of entries that are checked at a time."""
            return self._cleanup_size

        def run_cleanup_for_every_record(self) -> bool:
            """Returns whether records that do not access the state check entries as well."""
            return self._run_cleanup_for_every_record

        def _key(self) -> tuple[Any, ...]:
            return (self._cleanup_size, self._run_cleanup_for_every_record)

    class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
        """Strategy for state backends on RocksDB; the heap backend cleans up incrementally instead.

        Args:
            query_time_after_num_entries: number of entries between two readings of the clock.
            periodic_compaction_time: age after which files are compacted.
        """

        def __init__(self, query_time_after_num_entries: int, periodic_compaction_time: Span | None = None) -> None:
            self._query_time_after_num_entries = query_time_after_num_entries
            self._periodic_compaction_time = (
                Time.days(30)
                if periodic_compaction_time is None
                else Time.milliseconds(whole_millis("the time of compaction", periodic_compaction_time))
            )

        def get_query_time_after_num_entries(self) -> int:
            """Returns the number of entries between two readings of the clock."""
            return self._query_time_after_num_entries

        def get_periodic_compaction_time(self) -> Time:
            """Returns the age after which files are compacted."""
            return self._periodic_compaction_time

        def _key(self) -> tuple[Any, ...]:
            return (self._query_time_after_num_entries, self._periodic_compaction_time)

    EMPTY_STRATEGY = EmptyCleanupStrategy()

    def __init__(self, strategies: dict[Strategies, CleanupStrategy], is_cleanup_in_background: bool) -> None:
        self._strategies = dict(strategies)
        self._is_cleanup_in_background = is_cleanup_in_background

    def is_cleanup_in_background(self) -> bool:
        """Returns whether the default strategies apply where none was chosen."""
        return self._is_cleanup_in_background

    def in_full_snapshot(self) -> bool:
        """Returns whether snapshots leave expired values out."""
        return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Returns the incremental strategy; the default one if cleanup in the background is on and none was chosen."""
        chosen = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
        if chosen is None:
            return self.IncrementalCleanupStrategy(_DEFAULT_CLEANUP_SIZE, False) if self._background else None
        assert isinstance(chosen, self.IncrementalCleanupStrategy)
        return chosen

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Returns the strategy for RocksDB; the default one if cleanup in the background is on and none was chosen."""
        chosen = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
        if chosen is None:
            return self.RocksdbCompactFilterCleanupStrategy(1000) if self._background else None
        assert isinstance(chosen, self.RocksdbCompactFilterCleanupStrategy)
        return chosen

    @property
    def _background(self) -> bool:
        return self._is_cleanup_in_background

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CleanupStrategies):
            return NotImplemented
        return (self._strategies, self._background) == (other._strategies, other._background)

    def __hash__(self) -> int:
        return hash((frozenset(self._strategies.items()), self._background))


class _Builder:
    """Builds a ``StateTtlConfig``; each setter returns the builder.

    Args:
        ttl: time-to-live of values.
    """

    def __init__(self, ttl: Span) -> None:
        self._ttl = _checked_ttl(ttl)
        self._update_type = _UpdateType.OnCreateAndWrite
        self._state_visibility = _StateVisibility.NeverReturnExpired
        self._ttl_time_characteristic = _TtlTimeCharacteristic.ProcessingTime
        self._is_cleanup_in_background = True
        self._strategies: dict[_CleanupStrategies.Strategies, _CleanupStrategies.CleanupStrategy] = {}

    def set_update_type(self, update_type: _UpdateType) -> _Builder:
        """Sets which accesses extend the life of a value."""
        if not isinstance(update_type, _UpdateType):
            raise TypeError(f"update_type is a StateTtlConfig.UpdateType, not {type(update_type).__name__}")
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> _Builder:
        """Lets writes extend the life of a value (the default)."""
        return self.set_update_type(_UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> _Builder:
        """Lets reads and writes extend the life of a value."""
        return self.set_update_type(_UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: _StateVisibility) -> _Builder:
        """Sets whether expired values may still be returned."""
        if not isinstance(state_visibility, _StateVisibility):
            raise TypeError(
                f"state_visibility is a StateTtlConfig.StateVisibility, not {type(state_visibility).__name__}"
            )
        self._state_visibility = state_visibility
        return self

    def return_expired_if_not_cleaned_up(self) -> _Builder:
        """Returns an expired value once more if it has not been cleaned up before."""
        return self.set_state_visibility(_StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> _Builder:
        """Never returns an expired value (the default)."""
        return self.set_state_visibility(_StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: _TtlTimeCharacteristic) -> _Builder:
        """Sets the clock by which values expire; there is processing time only."""
        if not isinstance(ttl_time_characteristic, _TtlTimeCharacteristic):
            raise TypeError(
                "ttl_time_characteristic is a StateTtlConfig.TtlTimeCharacteristic, "
                f"not {type(ttl_time_characteristic).__name__}"
            )
        self._ttl_time_characteristic = ttl_time_characteristic
        return self

    def use_processing_time(self) -> _Builder:
        """Lets values expire by processing time (the default)."""
        return self.set_ttl_time_characteristic(_TtlTimeCharacteristic.ProcessingTime)

    def cleanup_full_snapshot(self) -> _Builder:
        """Leaves expired values out of snapshots."""
        return self._add(_CleanupStrategies.Strategies.FULL_STATE_SCAN_SNAPSHOT, _CleanupStrategies.EMPTY_STRATEGY)

    def cleanup_incrementally(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> _Builder:
        """Checks some entries with each access to the state or each record; see ``IncrementalCleanupStrategy``."""
        strategy = _CleanupStrategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
        return self._add(_CleanupStrategies.Strategies.INCREMENTAL_CLEANUP, strategy)

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Span | None = None
    ) -> _Builder:
        """Cleans up while RocksDB compacts its files; the heap backend goes on cleaning up incrementally."""
        strategy = _CleanupStrategies.RocksdbCompactFilterCleanupStrategy(
            query_time_after_num_entries, periodic_compaction_time
        )
        return self._add(_CleanupStrategies.Strategies.ROCKSDB_COMPACTION_FILTER, strategy)

    def disable_cleanup_in_background(self) -> _Builder:
        """Removes expired values only when they are accessed, unless a strategy is chosen."""
        self._is_cleanup_in_background = False
        return self

    def set_ttl(self, ttl: Span) -> _Builder:
        """Sets the time-to-live of values."""
        self._ttl = _checked_ttl(ttl)
        return self

    def build(self) -> StateTtlConfig:
        """Returns the ``StateTtlConfig`` with the builder's settings."""
        return StateTtlConfig(
            self._update_type,
            self._state_visibility,
            self._ttl_time_characteristic,
            self._ttl,
            _CleanupStrategies(self._strategies, self._is_cleanup_in_background),
        )

    def _add(self, kind: _CleanupStrategies.Strategies, strategy: _CleanupStrategies.CleanupStrategy) -> _Builder:
        self._strategies[kind] = strategy
        return self


class StateTtlConfig:
    """Time-to-live of state: ``StateTtlConfig.new_builder(Time.hours(1)).build()``, for ``enable_time_to_live``.

    Examples:
        ```python
        from firesteel.common import Time, Types
        from firesteel.datastream.state import StateTtlConfig, ValueStateDescriptor

        ttl = StateTtlConfig.new_builder(Time.hours(24)).update_ttl_on_read_and_write().never_return_expired().build()
        ValueStateDescriptor("session", Types.STRING()).enable_time_to_live(ttl)
        print(ttl.get_ttl().to_milliseconds())
        ```

        ```text
        86400000
        ```
    """

    UpdateType = _UpdateType
    StateVisibility = _StateVisibility
    TtlTimeCharacteristic = _TtlTimeCharacteristic
    CleanupStrategies = _CleanupStrategies
    Builder = _Builder

    def __init__(
        self,
        update_type: _UpdateType,
        state_visibility: _StateVisibility,
        ttl_time_characteristic: _TtlTimeCharacteristic,
        ttl: Span,
        cleanup_strategies: _CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _checked_ttl(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Span) -> _Builder:
        """Returns a builder.

        Raises:
            TypeError: the time-to-live is not a ``Time``.
            ValueError: it is not positive.
        """
        return _Builder(ttl)

    def get_update_type(self) -> _UpdateType:
        """Returns which accesses extend the life of a value."""
        return self._update_type

    def get_state_visibility(self) -> _StateVisibility:
        """Returns whether expired values may still be returned."""
        return self._state_visibility

    def get_ttl(self) -> Time:
        """Returns the time-to-live of values."""
        return self._ttl

    def get_ttl_time_characteristic(self) -> _TtlTimeCharacteristic:
        """Returns the clock by which values expire."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Returns whether values expire at all."""
        return self._update_type is not _UpdateType.Disabled

    def get_cleanup_strategies(self) -> _CleanupStrategies:
        """Returns how expired values are cleaned up."""
        return self._cleanup_strategies

    def _key(self) -> tuple[Any, ...]:
        return self._update_type, self._state_visibility, self._ttl, self._cleanup_strategies

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, StateTtlConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"StateTtlConfig({self._ttl}, {self._update_type.name}, {self._state_visibility.name})"


def _checked_ttl(ttl: Any) -> Time:
    millis = whole_millis("the time-to-live of state", ttl)
    if millis <= 0:
        raise ValueError(f"the time-to-live of state must be positive, not {ttl}")
    return Time.milliseconds(millis)
