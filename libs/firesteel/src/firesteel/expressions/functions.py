"""All functions of expressions, by name; importing this module fills the table."""

from __future__ import annotations

from firesteel.expressions import logic, numbers, parts, text_and_time
from firesteel.expressions.registry import FUNCTIONS, Call, Operand, Refused

__all__ = ["FUNCTIONS", "Call", "Operand", "Refused", "logic", "numbers", "parts", "text_and_time"]
