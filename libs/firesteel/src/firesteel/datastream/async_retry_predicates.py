"""Ready-made predicates for retry strategies, at PyFlink's place."""

from __future__ import annotations

from firesteel.functions.async_functions import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
