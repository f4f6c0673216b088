"""Expressions over the columns of typed streams: ``col("price") * 0.908``.

They are checked when the graph is built, and computed for whole batches by Arrow's kernels.
"""

from __future__ import annotations

from firesteel.expressions.aggregates import Aggregate, avg, count, first, last, max_, min_, sum_
from firesteel.expressions.expression import Expression, coalesce, col, concat, lit, when

__all__ = [
    "Aggregate",
    "Expression",
    "avg",
    "coalesce",
    "col",
    "concat",
    "count",
    "first",
    "last",
    "lit",
    "max_",
    "min_",
    "sum_",
    "when",
]
