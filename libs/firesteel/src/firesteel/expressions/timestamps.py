"""Event time that is read from columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from firesteel.common.typeinfo import TypeInformation
from firesteel.common.watermark_strategy import TimestampAssigner
from firesteel.core.errors import ProgramError
from firesteel.expressions.expression import Expression

__all__ = ["ColumnTimestamps"]


class ColumnTimestamps(TimestampAssigner):
    """An expression as a timestamp assigner: whole numbers of milliseconds, or times.

    Attributes:
        expression: over the columns of the stream.
        wrap: integers that overflow wrap around instead of failing.
    """

    def __init__(self, expression: Expression, *, wrap: bool = False) -> None:
        self.expression, self.wrap = expression, wrap

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Timestamps are computed for whole batches; see ``bound``."""
        raise TypeError(f"{self.expression} is computed for whole batches, not for one record")

    def bound(self, columns: Mapping[str, TypeInformation]) -> Callable[[Mapping[str, Any], int], Any]:
        """What computes the timestamps (an int64 array of numpy) of a batch from its columns and number of rows.

        Raises:
            ProgramError: the expression does not fit the columns, or is neither a whole number nor a time. What is
                returned raises it for a row without a timestamp.
        """
        import numpy as np
        import pyarrow as pa

        from firesteel.expressions.binding import bind
        from firesteel.expressions.schema import TIMESTAMP

        found = bind(self.expression, columns, wrap=self.wrap)
        if found.data_type == TIMESTAMP:
            found = bind(found.expression.dt.epoch_millis(), columns)
        if not pa.types.is_integer(found.data_type):
            raise ProgramError(
                f"with_timestamp_assigner(): {found.expression} is {found.type_info}; a timestamp is a whole number of "
                "milliseconds since 1970-01-01 UTC, or a time"
            )

        def timestamps(given: Mapping[str, Any], count: int) -> Any:
            column = found.evaluate(given, count)
            if column.null_count:
                row = column.is_null().index(True).as_py()
                raise ProgramError(
                    f"with_timestamp_assigner(): {found.expression} is null in row {row} of a batch of {count}; "
                    "give such records a timestamp with coalesce(), or leave them out with filter()"
                )
            return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int64)

        return timestamps

    def __repr__(self) -> str:
        return f"ColumnTimestamps({self.expression})"
