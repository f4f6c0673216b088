"""Conditions over pairs of rows of two inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.expressions import Expression
from firesteel.expressions.binding import bind_condition

Mask = npt.NDArray[np.bool_]


class PairCondition:
    """A condition over the columns of two inputs.

    Args:
        condition: over the names.
        types: names and types of a pair's columns, left ones first.
        width: number of the left ones.
    """

    def __init__(self, condition: Expression, types: Mapping[str, TypeInformation], width: int) -> None:
        names = list(types)
        self._condition = bind_condition(condition, types, wrap=True)
        self._places = [(name, names.index(name)) for name in sorted(self._condition.columns)]
        self._width = width

    def holds(self, column: Callable[[int, int], pa.Array], count: int) -> Mask:
        """Where it is true.

        Args:
            column: returns a column of the pairs, by input (0 = left) and place.
            count: number of pairs.
        """
        width = self._width
        pair = {name: column(0, place) if place < width else column(1, place - width) for name, place in self._places}
        truth: Mask = self._condition.evaluate(pair, count).fill_null(False).to_numpy(zero_copy_only=False)
        return truth
