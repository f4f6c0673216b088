"""Whether a job that failed is restarted, and after how long: Flink's strategies with Flink's rules. Pure."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from typing_extensions import override

from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.config.derived import restart_strategy_type


class RestartStrategy(ABC):
    """Counts failures, and decides about a restart after each. Times are seconds of a monotonic clock."""

    @abstractmethod
    def failed(self, now: float) -> bool:
        """Count a failure that is no consequence of another one; returns whether it counts as another attempt."""

    @abstractmethod
    def can_restart(self, now: float) -> bool:
        """Whether the job is restarted after the last failure."""

    @abstractmethod
    def delay(self, now: float) -> float:
        """Seconds until the restart."""

    @abstractmethod
    def __str__(self) -> str:
        """The strategy and its bounds for people, with the keys that set them."""


class NoRestart(RestartStrategy):
    """A failed job stays failed."""

    @override
    def failed(self, now: float) -> bool:
        return True

    @override
    def can_restart(self, now: float) -> bool:
        return False

    @override
    def delay(self, now: float) -> float:
        return 0.0

    def __str__(self) -> str:
        return "the job has no restart strategy (restart-strategy.type)"


class FixedDelay(RestartStrategy):
    """Restarts a job some times, with the same pause before each restart.

    Args:
        attempts: number of restarts.
        delay: seconds.
    """

    def __init__(self, attempts: int, delay: float) -> None:
        self._attempts, self._delay, self._failures = attempts, delay, 0

    def failed(self, now: float) -> bool:
        self._failures += 1
        return True

    def can_restart(self, now: float) -> bool:
        """Whether attempts are left."""
        return self._failures <= self._attempts

    def delay(self, now: float) -> float:
        return self._delay

    def __str__(self) -> str:
        return f"fixed-delay: it was restarted {self._attempts} times (restart-strategy.fixed-delay.attempts)"


class FailureRate(RestartStrategy):
    """Restarts a job until its failures come too often.

    Args:
        failures: how many may fall into an interval.
        interval, delay: seconds.
    """

    def __init__(self, failures: int, interval: float, delay: float) -> None:
        self._most, self._interval, self._delay = failures, interval, delay
        self._times: deque[float] = deque(maxlen=failures + 1)

    def failed(self, now: float) -> bool:
        self._times.append(now)
        return True

    def can_restart(self, now: float) -> bool:
        """Whether the interval that ends now has no more failures than may fall into one."""
        return len(self._times) <= self._most or now - self._times[0] > self._interval

    def delay(self, now: float) -> float:
        return self._delay

    def __str__(self) -> str:
        return (
            f"failure-rate: it failed more than {self._most} times within {self._interval:g} s "
            "(restart-strategy.failure-rate.max-failures-per-interval)"
        )


class ExponentialDelay(RestartStrategy):
    """Restarts a job after a pause that grows with every restart, until the job has run for a while without a failure.

    Failures before the end of the pause count as one with the failure that began it.

    Args:
        initial, maximum: seconds.
        multiplier: by which the pause grows.
        jitter: part of the pause by which it varies.
        reset_after: seconds without a failure.
        attempts: restarts without a reset.
        uniform: draws a number between two others.
    """

    def __init__(
        self,
        initial: float,
        maximum: float,
        multiplier: float,
        jitter: float,
        reset_after: float,
        attempts: int,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._initial, self._maximum, self._multiplier, self._jitter = initial, maximum, multiplier, jitter
        self._reset_after, self._attempts, self._uniform = reset_after, attempts, uniform
        self._count = 0
        self._next = -math.inf
        """When the last restart is due, or was."""

    def failed(self, now: float) -> bool:
        """Count a failure, unless it comes within the pause after another one, with which it counts as one."""
        if now <= self._next:
            return False
        if now >= self._next + self._reset_after:
            self._count = 0
        self._next = now + self._pause()
        self._count += 1
        return True

    def _pause(self) -> float:
        try:
            pause = min(self._maximum, self._initial * self._multiplier**self._count)
        except OverflowError:
            pause = self._maximum
        pause += self._uniform(-self._jitter * pause, self._jitter * pause)
        return max(self._initial, min(pause, self._maximum))

    def can_restart(self, now: float) -> bool:
        """Whether attempts are left before a reset."""
        return self._count <= self._attempts

    def delay(self, now: float) -> float:
        """Seconds that are left of the pause."""
        return max(0.0, self._next - now)

    def __str__(self) -> str:
        return (
            f"exponential-delay: it was restarted {self._attempts} times without {self._reset_after:g} s in peace "
            "(restart-strategy.exponential-delay.attempts-before-reset-backoff)"
        )


def restart_strategy(settings: Settings) -> RestartStrategy:
    """The strategy that the settings of a job, on top of the cluster's, ask for.

    Raises:
        ConfigurationError: a value is not valid.
    """

    def seconds(value: timedelta) -> float:
        return value.total_seconds()

    kind = restart_strategy_type(settings)
    if kind == "fixed-delay":
        return FixedDelay(settings.get(opt.RESTART_FIXED_ATTEMPTS), seconds(settings.get(opt.RESTART_FIXED_DELAY)))
    if kind == "failure-rate":
        return FailureRate(
            settings.get(opt.RESTART_RATE_FAILURES),
            seconds(settings.get(opt.RESTART_RATE_INTERVAL)),
            seconds(settings.get(opt.RESTART_RATE_DELAY)),
        )
    if kind == "exponential-delay":
        return ExponentialDelay(
            seconds(settings.get(opt.RESTART_BACKOFF_INITIAL)),
            seconds(settings.get(opt.RESTART_BACKOFF_MAX)),
            settings.get(opt.RESTART_BACKOFF_MULTIPLIER),
            settings.get(opt.RESTART_BACKOFF_JITTER),
            seconds(settings.get(opt.RESTART_BACKOFF_RESET)),
            settings.get(opt.RESTART_BACKOFF_ATTEMPTS),
        )
    return NoRestart()
