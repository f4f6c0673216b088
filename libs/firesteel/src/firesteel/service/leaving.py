"""The two ways in which a service leaves. Nothing else may end processes that work."""

from __future__ import annotations

from enum import Enum

from firesteel.core.errors import FencedError


class Leaving(Enum):
    """What becomes of the processes that a service looks after when it stops: the driver, slots, JobMasters, ..."""

    HAND_OVER = "HAND_OVER"
    """The processes go on, and a successor finds them. This is the default, whether the service was asked to stop
    (SIGTERM, a roll-out), failed, or does not lead any more."""
    END_ALL = "END_ALL"
    """The processes end with the service, in order. No successor will look for them: the cluster ends, or all processes
    of the service's container end with it."""


def way_out(requested: Leaving, failure: BaseException | None) -> Leaving:
    """How a service leaves.

    Args:
        requested: the way that was asked for.
        failure: why the service stops by itself; None = it was asked to.
    """
    if isinstance(failure, FencedError):  # another process leads, and looks after all of it by now
        return Leaving.HAND_OVER
    return requested
