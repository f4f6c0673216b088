"""Results of windows over columns, and the pieces in which they are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.aggregate_fields import Ints

PIECE: Final = 16_384
"""Most rows of a batch of results, and about as many as one slice of work looks at."""


class Results(NamedTuple):
    """Results of windows: a row for each key and window.

    Attributes:
        keys: columns of the keys.
        starts: starts of the windows, epoch ms.
        ends: ends of the windows, epoch ms.
        values: a column for each aggregate.
    """

    keys: list[pa.Array]
    starts: Ints
    ends: Ints
    values: list[pa.Array]


Work = Iterator[Results | None]
"""Yields results, and None after a slice of work without results."""


def concatenated(parts: Sequence[Results], order: Ints) -> Results:
    """Concatenate results, then reorder their rows."""
    chosen = pa.array(order)

    def together(columns: Sequence[pa.Array]) -> pa.Array:
        return pa.concat_arrays(list(columns)).take(chosen)

    return Results(
        [together(columns) for columns in zip(*[part.keys for part in parts], strict=True)],
        np.concatenate([part.starts for part in parts])[order],
        np.concatenate([part.ends for part in parts])[order],
        [together(columns) for columns in zip(*[part.values for part in parts], strict=True)],
    )


def pieces(count: int) -> Iterator[Ints]:
    """Yield the numbers from 0 to ``count`` - 1, in pieces of at most ``PIECE``."""
    for start in range(0, count, PIECE):
        yield np.arange(start, min(count, start + PIECE))
