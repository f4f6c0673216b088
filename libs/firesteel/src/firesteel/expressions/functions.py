"""All functions of expressions, by name; importing this module fills the table."""

from __future__ import annotations

from firesteel.expressions import logic, numbers, parts, text_and_time
from firesteel.expressions.registry import FUNCTIONS, FunctionCall, InputsRefused, Operand, definition_of

__all__ = [
    "FUNCTIONS",
    "FunctionCall",
    "InputsRefused",
    "Operand",
    "definition_of",
    "logic",
    "numbers",
    "parts",
    "text_and_time",
]
