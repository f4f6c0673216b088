"""Records made by a function."""

from __future__ import annotations

from firesteel.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

__all__ = ["DataGeneratorSource", "RateLimiterStrategy"]
