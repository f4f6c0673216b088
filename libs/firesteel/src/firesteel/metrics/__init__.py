"""Metrics of functions, at the place of ``pyflink.metrics``, and the contract of metric reporters."""

from __future__ import annotations

from firesteel.functions.metrics import Counter, Distribution, Meter, MetricGroup
from firesteel.metrics.reporter import Measured, MetricReporter

__all__ = ["Counter", "Distribution", "Measured", "Meter", "MetricGroup", "MetricReporter"]
