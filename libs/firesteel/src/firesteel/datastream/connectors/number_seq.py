"""A source of consecutive numbers, under PyFlink's module path."""

from __future__ import annotations

from firesteel.connectors.number_sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
