"""Expressions over the columns of typed streams: ``col("price") * 0.908``.

They are checked when the graph is built, and computed for whole batches by Arrow's kernels.
"""

from __future__ import annotations

from firesteel.expressions.expression import Expression, coalesce, col, concat, lit, when

__all__ = ["Expression", "coalesce", "col", "concat", "lit", "when"]
