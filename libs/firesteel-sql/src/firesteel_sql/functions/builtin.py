"""All built-in functions: importing this module declares them."""

from __future__ import annotations

from firesteel_sql.functions import json_functions, nested, numbers, operators, texts, times
from firesteel_sql.functions.signature import FUNCTIONS

__all__ = ["FUNCTIONS", "json_functions", "nested", "numbers", "operators", "texts", "times"]
