"""The two ways in which a service leaves; nothing else may end what works."""

from __future__ import annotations

from enum import Enum

from firesteel.core.errors import FencedError


class Leaving(Enum):
    """What becomes of all that a service looks after when it stops: driver, executors, slots, workers, JobMasters."""

    HAND_OVER = "HAND_OVER"
    """It goes on, and a successor finds it: the default, whether the service was told to stop (SIGTERM, a roll-out),
    failed, or leads no more."""
    END_ALL = "END_ALL"
    """It ends with the service, in order: nobody will come back for it, since the cluster ends, or since all processes
    of the service's container end with it."""


def way_out(wanted: Leaving, failure: BaseException | None) -> Leaving:
    """How a service leaves.

    Args:
        wanted: of it.
        failure: why it stops, if it was not told to.
    """
    if isinstance(failure, FencedError):  # all that it looked after is another one's by now
        return Leaving.HAND_OVER
    return wanted
