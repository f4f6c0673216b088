"""What windows over columns give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from firesteel.state.columnar.aggregate_fields import Ints

PIECE: Final = 16_384
"""Most rows of a batch of results, and about what is worked on at once."""


class Results(NamedTuple):
    """Results of windows: a row for each key and window.

    Attributes:
        keys: columns of the keys.
        starts: of the windows, ms.
        ends: the same.
        values: a column for each aggregate.
    """

    keys: list[pa.Array]
    starts: Ints
    ends: Ints
    values: list[pa.Array]


Work = Iterator[Results | None]
"""Results, and None where a slice of work gave nothing."""


def concatenated(parts: Sequence[Results], order: Ints) -> Results:
    """One behind the other, then brought into another order."""
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
    """Numbers from 0 to ``count`` - 1, a piece at a time."""
    for start in range(0, count, PIECE):
        yield np.arange(start, min(count, start + PIECE))
