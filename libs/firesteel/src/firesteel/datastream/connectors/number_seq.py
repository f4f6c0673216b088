"""Consecutive numbers."""

from __future__ import annotations

from firesteel.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
