"""Running aggregations of keyed streams."""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from firesteel.datastream import aggregations

if TYPE_CHECKING:
    from firesteel.common.typeinfo import TypeInformation
    from firesteel.datastream.data_stream import DataStream

__all__ = ["KeyedAggregations"]


class KeyedAggregations:
    """Of keyed streams: each gives the result so far after each record."""

    if TYPE_CHECKING:
        _record_type: TypeInformation

        @abstractmethod
        def _reduce(self, name: str, function: Any) -> DataStream: ...

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("sum", position_to_sum, self._record_type)
        return self._reduce("Sum", aggregations.FieldReduce(position, operator.add))

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The running minimum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("min", position_to_min, self._record_type)
        return self._reduce("Min", aggregations.FieldReduce(position, aggregations.smaller))

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The running maximum of a field; other fields are those of the key's first record."""
        position = aggregations.check_position("max", position_to_max, self._record_type)
        return self._reduce("Max", aggregations.FieldReduce(position, aggregations.greater))

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record whose field is the smallest so far, the first of equals."""
        position = aggregations.check_position("min_by", position_to_min_by, self._record_type)
        return self._reduce("MinBy", aggregations.PickRecord(position, smallest=True))

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record whose field is the greatest so far, the first of equals."""
        position = aggregations.check_position("max_by", position_to_max_by, self._record_type)
        return self._reduce("MaxBy", aggregations.PickRecord(position, smallest=False))
