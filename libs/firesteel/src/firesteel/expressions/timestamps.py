"""Event time that is read from columns, checked against the columns of a stream and made ready to run over batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import ProgramError
from firesteel.expressions.binding import bind
from firesteel.expressions.expression import ColumnTimestamps
from firesteel.expressions.schema import INSTANT, TIMESTAMP

__all__ = ["computing_timestamps"]


def computing_timestamps(
    assigner: ColumnTimestamps, columns: Mapping[str, TypeInformation], null: int | None = None
) -> Callable[[Mapping[str, Any], int], npt.NDArray[np.int64]]:
    """What computes the timestamps of a batch, in milliseconds, from its columns and number of rows.

    Args:
        assigner: the expression.
        columns: columns of the stream.
        null: stands for a null; None = a null is refused.

    Raises:
        ProgramError: the expression does not fit the columns, or is neither a whole number nor a time. What is
            returned raises it for a row without a timestamp.
    """
    bound = bind(assigner.expression, columns, wrap=assigner.wrap)
    if bound.data_type in (TIMESTAMP, INSTANT):
        bound = bind(bound.expression.dt.epoch_millis(), columns)
    if not pa.types.is_integer(bound.data_type):
        raise ProgramError(
            f"with_timestamp_assigner(): {bound.expression} is {bound.type_info}; a timestamp is a whole number of "
            "milliseconds since 1970-01-01 UTC, or a time"
        )

    def timestamps(batch_columns: Mapping[str, Any], count: int) -> npt.NDArray[np.int64]:
        column = bound.evaluate(batch_columns, count)
        if column.null_count and null is not None:
            column = column.fill_null(null)
        if column.null_count:
            row = column.is_null().index(True).as_py()
            raise ProgramError(
                f"with_timestamp_assigner(): {bound.expression} is null in row {row} of a batch of {count}; "
                "give such records a timestamp with coalesce(), or leave them out with filter()"
            )
        return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int64)

    return timestamps
