"""What functions measure, at the place of ``pyflink.metrics``."""

from __future__ import annotations

from firesteel.functions.metrics import Counter, Distribution, Meter, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "MetricGroup"]
