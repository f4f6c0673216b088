"""Functions that look at a part only in the rows where it counts: what a choice guards may fail in all other rows.

Whole columns are faster, so they come first. An expression that has failed once in whole columns works with the rows
that count from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from firesteel.expressions.registry import to

Columns: TypeAlias = Mapping[str, pa.Array]
Evaluate: TypeAlias = Callable[[Columns], Any]
Rows: TypeAlias = npt.NDArray[np.int64]
FAILURES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError, ValueError)
"""What kernels raise where a value can't be computed."""


class LazyInput(NamedTuple):
    """An input: what computes it, and the names of the columns that this reads."""

    evaluate: Evaluate
    columns: frozenset[str]

    def of(self, found: Columns, rows: Rows, data_type: pa.DataType) -> pa.Array:
        """The values in these rows, as this type."""
        places = pa.array(rows)
        result = to(self.evaluate({name: found[name].take(places) for name in self.columns}), data_type)
        if isinstance(result, pa.Scalar):
            return pa.repeat(result, len(rows))
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


Pieces: TypeAlias = list[tuple[Rows, pa.Array]]
"""Values and the rows in which they stand; each row stands in one piece."""


def when_rows(parts: Sequence[LazyInput], found: Columns, left: Rows, data_type: pa.DataType) -> Pieces:
    """The value behind the first condition that holds; the last part where none does."""
    *branches, otherwise = parts
    pieces: Pieces = []
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        if not len(left):
            return pieces
        holds = _true(condition.of(found, left, pa.bool_()))
        if holds.any():
            chosen = left[holds]
            pieces.append((chosen, value.of(found, chosen, data_type)))
            left = left[~holds]
    return [*pieces, (left, otherwise.of(found, left, data_type))] if len(left) else pieces


def coalesce_rows(parts: Sequence[LazyInput], found: Columns, left: Rows, data_type: pa.DataType) -> Pieces:
    """The first value that is not null."""
    pieces: Pieces = []
    for part in parts:
        if not len(left):
            break
        values = part.of(found, left, data_type)
        valid = pc.is_valid(values)
        pieces.append((left[_true(valid)], values.filter(valid)))
        left = left[~_true(valid)]
    return [*pieces, (left, pa.nulls(len(left), data_type))]


def _connected(absorbing: bool, parts: Sequence[LazyInput], found: Columns, rows: Rows) -> Pieces:
    """``and``, ``or``: the right side where the left one does not say it all."""
    left, right = parts
    one = left.of(found, rows, pa.bool_())
    settled = _true(pc.equal(one, absorbing))
    open_rows = rows[~settled]
    pieces: Pieces = [(rows[settled], pa.repeat(pa.scalar(absorbing), int(settled.sum())))]
    if len(open_rows):
        kernel = pc.or_kleene if absorbing else pc.and_kleene
        rest = one.filter(pa.array(~settled))
        pieces.append((open_rows, kernel(rest, right.of(found, open_rows, pa.bool_()))))
    return pieces


LAZY: dict[str, Callable[[Sequence[LazyInput], Columns, Rows, pa.DataType], Pieces]] = {
    "when": when_rows,
    "coalesce": coalesce_rows,
    "&": lambda parts, found, rows, _: _connected(False, parts, found, rows),
    "|": lambda parts, found, rows, _: _connected(True, parts, found, rows),
}


def guarded(function: str, parts: Sequence[LazyInput], eager: Evaluate, data_type: pa.DataType) -> Evaluate:
    """Computes a function of ``LAZY``: at once, and if that fails, each part in the rows where it counts.

    Args:
        function: its name.
        parts: its inputs.
        eager: computes it from all parts in all rows.
        data_type: of the result.
    """
    failed = False

    def evaluate(found: Columns) -> Any:
        nonlocal failed
        if not failed:
            try:
                return eager(found)
            except FAILURES:
                failed = True
        return by_rows(function, parts, found, data_type)

    return evaluate


def by_rows(function: str, parts: Sequence[LazyInput], found: Columns, data_type: pa.DataType) -> Any:
    """The result, an array; of no columns a scalar."""
    count = next((len(column) for column in found.values()), None)
    rows: Rows = np.arange(1 if count is None else count, dtype=np.int64)
    pieces = [piece for piece in LAZY[function](parts, found, rows, data_type) if len(piece[0])]
    if not pieces:
        return pa.nulls(0, data_type)
    result = pieces[0][1]
    if len(pieces) > 1:
        places = np.empty(len(rows), np.int64)
        places[np.concatenate([held for held, _ in pieces])] = np.arange(len(rows))
        result = pa.concat_arrays([values for _, values in pieces]).take(pa.array(places))
    return result[0] if count is None else result


def _true(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Where it is true: not false, and not null."""
    known = values if values.null_count == 0 else pc.fill_null(values, False)
    return known.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
