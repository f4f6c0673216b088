"""What a sink promises. PyFlink's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["DeliveryGuarantee"]


class DeliveryGuarantee(Enum):
    """How often a record is delivered when a job is restarted."""

    EXACTLY_ONCE = 0
    """Once, also when the job failed in between."""
    AT_LEAST_ONCE = 1
    """Once or more often."""
    NONE = 2
    """Perhaps not at all, perhaps more than once."""
