"""Whether a job that failed is restarted, and after how long: Flink's strategies with Flink's rules. Pure."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from firesteel.config import Settings
from firesteel.config import options as opt
from firesteel.config.restarts import restart_strategy_type


class RestartStrategy(ABC):
    """Is told of every failure, and then asked. Times are seconds of a monotonic clock."""

    @abstractmethod
    def failed(self, now: float) -> bool:
        """A failure that is no consequence of another one; returns whether it counts as another attempt."""

    @abstractmethod
    def can_restart(self, now: float) -> bool:
        """Whether the job is restarted after the last failure."""

    @abstractmethod
    def delay(self, now: float) -> float:
        """Seconds until the restart."""

    @abstractmethod
    def __str__(self) -> str:
        """For people: the strategy and its bounds, with the keys that set them."""


class NoRestart(RestartStrategy):
    """A failed job stays failed."""

    def failed(self, now: float) -> bool:
        return True

    def can_restart(self, now: float) -> bool:
        """Never."""
        return False

    def delay(self, now: float) -> float:
        """None."""
        return 0.0

    def __str__(self) -> str:
        return "the job has no restart strategy (restart-strategy.type)"


class FixedDelay(RestartStrategy):
    """So many restarts, with the same pause before each.

    Args:
        attempts: restarts.
        delay: seconds.
    """

    def __init__(self, attempts: int, delay: float) -> None:
        self._attempts, self._delay, self._failures = attempts, delay, 0

    def failed(self, now: float) -> bool:
        self._failures += 1
        return True

    def can_restart(self, now: float) -> bool:
        """Until the attempts are used up."""
        return self._failures <= self._attempts

    def delay(self, now: float) -> float:
        return self._delay

    def __str__(self) -> str:
        return f"fixed-delay: it was restarted {self._attempts} times (restart-strategy.fixed-delay.attempts)"


class FailureRate(RestartStrategy):
    """Restarts until failures come too often.

    Args:
        failures: so many may fall into an interval.
        interval, delay: seconds.
    """

    def __init__(self, failures: int, interval: float, delay: float) -> None:
        self._most, self._interval, self._delay = failures, interval, delay
        self._times: deque[float] = deque(maxlen=failures + 1)

    def failed(self, now: float) -> bool:
        self._times.append(now)
        return True

    def can_restart(self, now: float) -> bool:
        """As long as no more failures than that fall into the interval that ends now."""
        return len(self._times) <= self._most or now - self._times[0] > self._interval

    def delay(self, now: float) -> float:
        return self._delay

    def __str__(self) -> str:
        return (
            f"failure-rate: it failed more than {self._most} times within {self._interval:g} s "
            "(restart-strategy.failure-rate.max-failures-per-interval)"
        )


class ExponentialDelay(RestartStrategy):
    """A pause that grows with every restart, until the job has run for a while without a failure.

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
        """A failure within the pause is one with that before it."""
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
        """Until the attempts without a reset are used up."""
        return self._count <= self._attempts

    def delay(self, now: float) -> float:
        """What is left of the pause."""
        return max(0.0, self._next - now)

    def __str__(self) -> str:
        return (
            f"exponential-delay: it was restarted {self._attempts} times without {self._reset_after:g} s in peace "
            "(restart-strategy.exponential-delay.attempts-before-reset-backoff)"
        )


def restart_strategy(settings: Settings) -> RestartStrategy:
    """The strategy that settings ask for: those of the job on top of the cluster's.

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
