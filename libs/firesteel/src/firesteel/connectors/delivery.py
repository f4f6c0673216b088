"""The guarantee of a sink, with PyFlink's name."""

from __future__ import annotations

from enum import Enum

__all__ = ["DeliveryGuarantee"]


class DeliveryGuarantee(Enum):
    """How often a record is delivered when a job is restarted.

    Examples:
        ```python
        from firesteel.datastream.connectors import DeliveryGuarantee
        from firesteel.datastream.connectors.kafka import KafkaSink

        builder = KafkaSink.builder().set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        ```
    """

    EXACTLY_ONCE = 0
    """Each record is delivered once, also if the job is restarted."""
    AT_LEAST_ONCE = 1
    """Each record is delivered once or several times."""
    NONE = 2
    """Records may be lost or delivered several times."""
