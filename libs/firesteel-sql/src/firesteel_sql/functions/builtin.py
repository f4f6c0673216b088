"""All built-in functions: importing this module declares them."""

from __future__ import annotations

from firesteel_sql.functions import nested, numbers, operators, texts, times
from firesteel_sql.functions.signature import FUNCTIONS

__all__ = ["FUNCTIONS", "GROUPS"]

GROUPS = {
    "operators and choices": operators,
    "numbers": numbers,
    "texts": texts,
    "times": times,
    "arrays, maps and rows": nested,
}
"""The modules that declare functions, by what their functions are about."""
