"""Decides when to warn that checkpoints are slow: before one expires, and the job would go back to an old one."""

from __future__ import annotations

from typing import Final

SHORTEST_SECONDS: Final = 5.0
"""Duration below which a checkpoint is never called slow."""
INTERVALS: Final = 5
"""Intervals without a completed checkpoint after which there is a warning."""
_ADVICE: Final = "the job goes on from the last complete one if it fails; see the Checkpoints page for who is late"


def warning_of(
    timeout: float,
    interval: float,
    *,
    under_way: float | None = None,
    last: float | None = None,
    before: float | None = None,
    without: float | None = None,
) -> str:
    """The warning about the checkpoints of a job; empty if there is nothing to warn of. All times are in seconds.

    Args:
        timeout: ``execution.checkpointing.timeout``.
        interval: ``execution.checkpointing.interval``; 0 = no periodic checkpoints.
        under_way: time that the oldest checkpoint under way has taken so far.
        last: duration of the last complete checkpoint.
        before: duration of the one before that.
        without: time since the last one was complete, or since the job runs.
    """
    limit = f"(execution.checkpointing.timeout: {timeout:g} s)"
    half = max(timeout / 2, SHORTEST_SECONDS)
    if under_way is not None and under_way >= half:
        return f"a checkpoint has been under way for {under_way:.0f} s {limit}; {_ADVICE}"
    if interval and without is not None and without >= max(INTERVALS * interval, 2 * SHORTEST_SECONDS):
        return f"no checkpoint has been complete for {without:.0f} s, at an interval of {interval:g} s; {_ADVICE}"
    if last is not None and last >= half:
        return f"the last checkpoint took {last:.0f} s {limit}; {_ADVICE}"
    if last is not None and before is not None and last >= SHORTEST_SECONDS and last >= 2 * before:
        return f"the last checkpoint took {last:.0f} s, the one before {before:.1f} s {limit}; {_ADVICE}"
    return ""
