from __future__ import annotations

from typing import Any

import pytest

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError
from firesteel_jobmaster.restart_strategies import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    restart_strategy,
)
from firesteel_jobmaster.settings import JobMasterSettings


def after(strategy: RestartStrategy, *times: float) -> list[float | None]:
    """For failures at these times the pauses before the restarts; None = no restart."""
    delays: list[float | None] = []
    for now in times:
        strategy.failed(now)
        delays.append(round(strategy.delay(now), 6) if strategy.can_restart(now) else None)
    return delays


def exponential(**changes: Any) -> ExponentialDelay:
    arguments = {"initial": 1, "maximum": 60, "multiplier": 2, "jitter": 0, "reset_after": 3600, "attempts": 2**31 - 1}
    return ExponentialDelay(**{**arguments, **changes})


def test_fixed_delay_counts_restarts() -> None:
    assert after(FixedDelay(2, 5.0), 0, 100, 200, 300) == [5, 5, None, None]
    assert after(FixedDelay(0, 5.0), 0) == [None]


def test_failure_rate_looks_at_the_last_interval() -> None:
    assert after(FailureRate(2, 60.0, 1.0), 0, 10, 20) == [1, 1, None]
    assert after(FailureRate(2, 60.0, 1.0), 0, 10, 60.5, 70.5, 80) == [1, 1, 1, 1, None]
    assert after(FailureRate(1, 60.0, 1.0), 0, 60) == [1, None]


def test_exponential_delay_grows_to_its_maximum() -> None:
    assert after(exponential(), 0, 10, 20, 30, 50, 100, 200, 300) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_exponential_delay_takes_failures_within_the_pause_as_one() -> None:
    strategy = exponential()
    assert strategy.failed(0)
    assert not strategy.failed(0.4)
    assert strategy.delay(0.4) == pytest.approx(0.6)
    assert strategy.failed(1.5)
    assert strategy.delay(1.5) == 2


def test_exponential_delay_begins_anew_after_peace() -> None:
    assert after(exponential(reset_after=100), 0, 10, 20, 124, 130) == [1, 2, 4, 1, 2]
    assert after(exponential(reset_after=100), 0, 10, 20, 123.9) == [1, 2, 4, 8]


def test_exponential_delay_may_have_an_end() -> None:
    assert after(exponential(attempts=2), 0, 10, 20) == [1, 2, None]


def test_jitter_stays_within_its_part_and_the_bounds() -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return low if len(drawn) == 1 else high

    strategy = exponential(jitter=0.1, uniform=uniform)
    assert after(strategy, 0, 10, 20) == [1, 2.2, 4.4]
    assert drawn[1] == (-0.2, 0.2)
    assert after(exponential(jitter=0.1, maximum=1, uniform=lambda low, high: high), 0) == [1]


def test_never_overflows() -> None:
    strategy = exponential(multiplier=1e9)
    assert after(strategy, *range(0, 100_000, 100))[-1] == 60


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, NoRestart),
        ({"execution.checkpointing.interval": "0 s"}, NoRestart),
        ({"execution.checkpointing.interval": "1 s"}, ExponentialDelay),
        ({"execution.checkpointing.interval": "1 s", "restart-strategy.type": "none"}, NoRestart),
        ({"restart-strategy.type": "off"}, NoRestart),
        ({"restart-strategy.type": "fixed-delay"}, FixedDelay),
        ({"restart-strategy.type": "failure-rate"}, FailureRate),
        ({"restart-strategy.type": "exponential-delay"}, ExponentialDelay),
    ],
)
def test_the_strategy_follows_from_the_settings(config: dict[str, str], kind: type[RestartStrategy]) -> None:
    assert type(restart_strategy(Settings(config))) is kind
    assert type(JobMasterSettings.read(Settings({}), config).new_restart_strategy()) is kind


def test_defaults_are_those_of_flink() -> None:
    assert after(restart_strategy(Settings({"restart-strategy.type": "fixed-delay"})), 0, 10) == [1, None]
    assert after(restart_strategy(Settings({"restart-strategy.type": "failure-rate"})), 0, 61, 62) == [1, 1, None]
    pauses = after(restart_strategy(Settings({"restart-strategy.type": "exponential-delay"})), *range(0, 9000, 100))
    assert pauses[0] is not None
    assert 1 <= pauses[0] <= 1.1
    assert pauses[-1] is not None
    assert 54 <= pauses[-1] <= 60


def test_a_jobs_settings_go_before_the_clusters() -> None:
    cluster = Settings({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "7"})
    assert isinstance(JobMasterSettings.read(cluster).new_restart_strategy(), FixedDelay)
    own = JobMasterSettings.read(cluster, {"restart-strategy.type": "none"})
    assert isinstance(own.new_restart_strategy(), NoRestart)
    with pytest.raises(ConfigurationError, match=r"fixed-delay\.attempts"):
        JobMasterSettings.read(cluster, {"restart-strategy.fixed-delay.attempts": "-1"})
