"""Functions that evaluate an input only in the rows where it counts: what a choice guards may fail in other rows.

Kernels over whole columns are faster, so they are tried first. An expression that has failed once on whole columns is
evaluated on selections of rows from then on.
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
    """An input of a lazy function: its evaluation, and the names of the columns that this reads."""

    evaluate: Evaluate
    columns: frozenset[str]

    def of(self, columns: Columns, rows: Rows, data_type: pa.DataType) -> pa.Array:
        """Evaluate the input on these rows only, and cast the result to this type."""
        places = pa.array(rows)
        result = to(self.evaluate({name: columns[name].take(places) for name in self.columns}), data_type)
        if isinstance(result, pa.Scalar):
            return pa.repeat(result, len(rows))
        return result.combine_chunks() if isinstance(result, pa.ChunkedArray) else result


Pieces: TypeAlias = list[tuple[Rows, pa.Array]]
"""Values and the rows in which they stand; each row stands in one piece."""


def when_rows(parts: Sequence[LazyInput], columns: Columns, open_rows: Rows, data_type: pa.DataType) -> Pieces:
    """Evaluate ``when``: each row gets the value behind its first true condition, else that of the last part.

    The rows without a true condition shrink from branch to branch, so a branch sees only rows that reach it.
    """
    *branches, otherwise = parts
    pieces: Pieces = []
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        if not len(open_rows):
            return pieces
        holds = _true(condition.of(columns, open_rows, pa.bool_()))
        if holds.any():
            chosen = open_rows[holds]
            pieces.append((chosen, value.of(columns, chosen, data_type)))
            open_rows = open_rows[~holds]
    return [*pieces, (open_rows, otherwise.of(columns, open_rows, data_type))] if len(open_rows) else pieces


def coalesce_rows(parts: Sequence[LazyInput], columns: Columns, open_rows: Rows, data_type: pa.DataType) -> Pieces:
    """Evaluate ``coalesce``: each row gets its first value that is not null; later parts see only rows still null."""
    pieces: Pieces = []
    for part in parts:
        if not len(open_rows):
            break
        values = part.of(columns, open_rows, data_type)
        valid = pc.is_valid(values)
        pieces.append((open_rows[_true(valid)], values.filter(valid)))
        open_rows = open_rows[~_true(valid)]
    return [*pieces, (open_rows, pa.nulls(len(open_rows), data_type))]


def _connected(absorbing: bool, parts: Sequence[LazyInput], columns: Columns, rows: Rows) -> Pieces:
    """Evaluate ``&`` or ``|``: the right side only in rows where the left one does not settle the result.

    Args:
        absorbing: the value of the left side that settles it: False for ``&``, True for ``|``.
        parts: the left and the right side.
        columns: of the batch.
        rows: to evaluate.
    """
    left, right = parts
    left_values = left.of(columns, rows, pa.bool_())
    settled = _true(pc.equal(left_values, absorbing))
    open_rows = rows[~settled]
    pieces: Pieces = [(rows[settled], pa.repeat(pa.scalar(absorbing), int(settled.sum())))]
    if len(open_rows):
        kernel = pc.or_kleene if absorbing else pc.and_kleene
        open_left_values = left_values.filter(pa.array(~settled))
        pieces.append((open_rows, kernel(open_left_values, right.of(columns, open_rows, pa.bool_()))))
    return pieces


LAZY: dict[str, Callable[[Sequence[LazyInput], Columns, Rows, pa.DataType], Pieces]] = {
    "when": when_rows,
    "coalesce": coalesce_rows,
    "&": lambda parts, columns, rows, _: _connected(False, parts, columns, rows),
    "|": lambda parts, columns, rows, _: _connected(True, parts, columns, rows),
}


def guarded(function: str, parts: Sequence[LazyInput], eager: Evaluate, data_type: pa.DataType) -> Evaluate:
    """An evaluation of a function of ``LAZY``: on whole columns, and once that has failed, by selections of rows.

    Args:
        function: its name.
        parts: its inputs.
        eager: computes it from all parts in all rows.
        data_type: of the result.
    """
    failed = False

    def evaluate(columns: Columns) -> Any:
        nonlocal failed
        if not failed:
            try:
                return eager(columns)
            except FAILURES:
                failed = True
        return by_rows(function, parts, columns, data_type)

    return evaluate


def by_rows(function: str, parts: Sequence[LazyInput], columns: Columns, data_type: pa.DataType) -> Any:
    """Evaluate a function of ``LAZY`` by selections of rows; the result is an array, or a scalar without columns."""
    count = next((len(column) for column in columns.values()), None)
    rows: Rows = np.arange(1 if count is None else count, dtype=np.int64)
    pieces = [piece for piece in LAZY[function](parts, columns, rows, data_type) if len(piece[0])]
    if not pieces:
        return pa.nulls(0, data_type)
    result = pieces[0][1]
    if len(pieces) > 1:
        # pieces stand one behind the other: invert their row numbers to bring the values into the order of rows
        places = np.empty(len(rows), np.int64)
        places[np.concatenate([piece_rows for piece_rows, _ in pieces])] = np.arange(len(rows))
        result = pa.concat_arrays([values for _, values in pieces]).take(pa.array(places))
    return result[0] if count is None else result


def _true(values: pa.Array) -> npt.NDArray[np.bool_]:
    """A mask of the rows that are true: neither false nor null."""
    non_null = values if values.null_count == 0 else pc.fill_null(values, False)
    return non_null.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
