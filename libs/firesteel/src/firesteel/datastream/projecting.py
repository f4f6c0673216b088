"""``project()`` of all streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firesteel.common.typeinfo import TupleTypeInfo, TypeInformation
from firesteel.datastream import aggregations, checks
from firesteel.graph.specs import OperatorKind

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream

__all__ = ["Projecting"]


class Projecting:
    """Some fields of a tuple stream."""

    if TYPE_CHECKING:
        _record_type: TypeInformation

        def _derive(
            self, name: str, kind: OperatorKind, function: Any, type_info: TypeInformation, coerce_to: None
        ) -> DataStream: ...

    def project(self, *field_indexes: int) -> DataStream:
        """Keeps some fields of a tuple stream, in the order given.

        Raises:
            TypeError: the records are no typed tuples, or an index is no int.
            ValueError: no index is given, or there is no such field.
        """
        if not isinstance(self._record_type, TupleTypeInfo):
            raise TypeError(f"Only Tuple DataStreams can be projected; this one has the type {self._record_type}")
        types = self._record_type.field_types
        if not field_indexes:
            raise ValueError("project() takes at least one field index")
        for index in field_indexes:
            checks.whole_number("a field index of project()", index, 0, len(types) - 1)
        chosen = TupleTypeInfo([types[index] for index in field_indexes])
        function = aggregations.Project(tuple(field_indexes))
        return self._derive("Projection", OperatorKind.MAP, function, chosen, coerce_to=None)
