"""Restart strategies as PyFlink describes them. Since 2.0 they are set by the ``restart-strategy`` keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration(ABC):
    """Decides whether and when a job is restarted after a failure.

    Examples:
        ```python
        from firesteel.common import RestartStrategies, RestartStrategyConfiguration

        print(isinstance(RestartStrategies.no_restart(), RestartStrategyConfiguration))
        ```

        ```text
        True
        ```
    """

    @abstractmethod
    def get_description(self) -> str:
        """Returns the strategy in a few words."""

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.get_description()))


class RestartStrategies:
    """Makes restart strategies. Delays and intervals are ``timedelta`` or milliseconds.

    Examples:
        ```python
        from firesteel.common import RestartStrategies

        print(RestartStrategies.fixed_delay_restart(3, 10_000).get_description())
        ```

        ```text
        Restart with fixed delay (0:00:10). #3 restart attempts.
        ```
    """

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A failed job stays failed."""

        def get_description(self) -> str:
            """Returns the strategy in a few words."""
            return "Restart deactivated."

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The cluster's strategy decides."""

        def get_description(self) -> str:
            """Returns the strategy in a few words."""
            return "Cluster level default restart strategy"

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts a number of times, with a pause before each restart."""

        def __init__(
            self, restart_attempts: int | None = None, delay_between_attempts_interval: timedelta | int | None = None
        ) -> None:
            self._attempts = 1 if restart_attempts is None else restart_attempts
            self._delay = _span(delay_between_attempts_interval, timedelta(seconds=1))

        def get_restart_attempts(self) -> int:
            """Returns the largest number of restarts."""
            return self._attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Returns the pause before each restart."""
            return self._delay

        def get_description(self) -> str:
            """Returns the strategy in a few words."""
            return f"Restart with fixed delay ({self._delay}). #{self._attempts} restart attempts."

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts until there are too many failures in an interval."""

        def __init__(
            self,
            max_failure_rate: int | None = None,
            failure_interval: timedelta | int | None = None,
            delay_between_attempts_interval: timedelta | int | None = None,
        ) -> None:
            self._rate = 1 if max_failure_rate is None else max_failure_rate
            self._interval = _span(failure_interval, timedelta(minutes=1))
            self._delay = _span(delay_between_attempts_interval, timedelta(seconds=1))

        def get_max_failure_rate(self) -> int:
            """Returns the largest number of failures in an interval that still leads to a restart."""
            return self._rate

        def get_failure_interval(self) -> timedelta:
            """Returns the interval in which failures are counted."""
            return self._interval

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Returns the pause before each restart."""
            return self._delay

        def get_description(self) -> str:
            """Returns the strategy in a few words."""
            return f"Failure rate restart with maximum of {self._rate} failures within {self._interval}."

    @staticmethod
    def no_restart() -> RestartStrategies.NoRestartStrategyConfiguration:
        """Makes the strategy that never restarts."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategies.FallbackRestartStrategyConfiguration:
        """Makes the strategy that leaves the decision to the cluster's strategy."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: timedelta | int
    ) -> RestartStrategies.FixedDelayRestartStrategyConfiguration:
        """Restarts a number of times, with a pause before each restart."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: timedelta | int, delay_interval: timedelta | int
    ) -> RestartStrategies.FailureRateRestartStrategyConfiguration:
        """Makes a strategy that restarts until ``failure_interval`` has more than ``failure_rate`` failures."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)


def _span(value: timedelta | int | None, default: timedelta) -> timedelta:
    if value is None:
        return default
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)
