"""Keys of streams with columns: read from columns, or computed from them by expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from firesteel.common.typeinfo import TypeInformation
    from firesteel.expressions.binding import BoundExpression
    from firesteel.expressions.expression import Expression


class ManyKeys(ABC):
    """A key selector that reads the keys of many records together, which costs far less than one after the other."""

    @abstractmethod
    def keys_of(self, records: Sequence[Any]) -> Sequence[Any]:
        """The key of each record."""


class ColumnKey:
    """Reads the key of a row or tuple; partitioners read it from the columns of a batch.

    The key of one column is its value, that of several a tuple; without columns all records have the key ``()``.

    Args:
        names: what the parts of the key are called in results.
        indexes: positions of the columns that are read.
        reads: their names; None = ``names``.

    Attributes:
        names, indexes, reads: the same.
    """

    def __init__(self, names: Sequence[str], indexes: Sequence[int], reads: Sequence[str] | None = None) -> None:
        self.names, self.indexes = tuple(names), tuple(indexes)
        self.reads = self.names if reads is None else tuple(reads)
        self._get = itemgetter(*self.indexes) if self.indexes else (lambda record: ())

    def __call__(self, record: Any) -> Any:
        return self._get(record)

    def over(self, columns: Sequence[str]) -> ColumnKey:
        """The same key, read from records that have just these columns."""
        return ColumnKey(self.names, [columns.index(name) for name in self.reads], self.reads)

    def types(self, columns: Mapping[str, TypeInformation]) -> list[TypeInformation]:
        """The declared types of the key's parts, in a stream with these columns."""
        return [columns[name] for name in self.reads]

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The fields of the key's columns, for batches of this schema."""
        return [schema.field(index) for index in self.indexes]

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns.

        Raises:
            ProgramError: a key can't be computed; shows the row.
        """
        return [batch.column(index) for index in self.indexes]

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnKey, (self.names, self.indexes, self.reads)

    def __repr__(self) -> str:
        return f"columns {', '.join(self.names)}"


class ComputedKey(ColumnKey, ManyKeys):
    """A key with computed parts. Single rows go through the same kernels as batches, so that both give equal keys.

    Args:
        names: what the parts of the key are called in results.
        expressions: one for each part; plain columns are read as they are.
        columns: the columns that are read, and their declared types.
        indexes: their positions.
        wrap: whole numbers that overflow wrap around instead of failing.
    """

    def __init__(
        self,
        names: Sequence[str],
        expressions: Sequence[Expression],
        columns: Mapping[str, TypeInformation],
        indexes: Sequence[int],
        *,
        wrap: bool = False,
    ) -> None:
        super().__init__(names, indexes, tuple(columns))
        self._expressions, self._columns, self._wrap = tuple(expressions), dict(columns), wrap

    def __call__(self, record: Any) -> Any:
        """The key of one record; ``keys_of`` is for many."""
        return self.keys_of((record,))[0]

    def keys_of(self, records: Sequence[Any]) -> list[Any]:
        """The key of each record.

        Raises:
            ProgramError: a key can't be computed; shows the columns of the record.
            TypeMismatchError: a record does not fit the type of the stream.
        """
        from firesteel.expressions.values import column_of, field_of, values_of

        values = {
            name: [record[index] for record in records] for name, index in zip(self.reads, self.indexes, strict=True)
        }
        computed_columns = {name: column_of(values[name], name, self._columns[name]) for name in self._computed_from}
        parts = []
        for part in self._parts:
            if isinstance(part, str):
                parts.append(values[part])
            else:
                computed = part.evaluate(computed_columns, len(records))
                parts.append(values_of(computed, field_of("key", part.type_info)))
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))

    def over(self, columns: Sequence[str]) -> ColumnKey:
        """The same key, read from records that have just these columns."""
        indexes = [columns.index(name) for name in self.reads]
        return ComputedKey(self.names, self._expressions, self._columns, indexes, wrap=self._wrap)

    def types(self, columns: Mapping[str, TypeInformation]) -> list[TypeInformation]:
        """The declared types of the key's parts."""
        return [self._columns[part] if isinstance(part, str) else part.type_info for part in self._parts]

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The fields of the key's columns."""
        from firesteel.expressions.values import field_of

        return [field_of(*name_and_type) for name_and_type in zip(self.names, self.types(self._columns), strict=True)]

    def arrays(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns, computed."""
        read_columns = {name: batch.column(index) for name, index in zip(self.reads, self.indexes, strict=True)}
        return [
            read_columns[part] if isinstance(part, str) else part.evaluate(read_columns, batch.num_rows)
            for part in self._parts
        ]

    @cached_property
    def _parts(self) -> list[str | BoundExpression]:
        """The parts of the key: a column's name, or a bound expression."""
        from firesteel.expressions.binding import bind  # loads Arrow's kernels

        return [
            expression.options["name"]
            if expression.function == "column"
            else bind(expression, self._columns, wrap=self._wrap)
            for expression in self._expressions
        ]

    @cached_property
    def _computed_from(self) -> frozenset[str]:
        return frozenset[str]().union(*[part.columns for part in self._parts if not isinstance(part, str)])

    def __reduce__(self) -> tuple[Any, ...]:
        return _computed, (self.names, self._expressions, self._columns, self.indexes, self._wrap)


def _computed(
    names: Iterable[str],
    expressions: Iterable[Expression],
    columns: Mapping[str, TypeInformation],
    indexes: Iterable[int],
    wrap: bool,
) -> ComputedKey:
    return ComputedKey(tuple(names), tuple(expressions), columns, tuple(indexes), wrap=wrap)
