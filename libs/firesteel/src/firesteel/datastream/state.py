"""Keyed state and its descriptors, under PyFlink's module path."""

from __future__ import annotations

from firesteel.functions.state import State, StateDescriptor, ValueState, ValueStateDescriptor

__all__ = ["State", "StateDescriptor", "ValueState", "ValueStateDescriptor"]
