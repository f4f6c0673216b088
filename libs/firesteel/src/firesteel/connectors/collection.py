"""A source of records that the program holds in memory."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.split_reader import Chunk, SplitCursor, SplitQueueReader
from firesteel.functions.source import Boundedness, EnumeratorSpec, ReaderContext, Source, Split


class CollectionSource(Source[Any]):
    """Emits the items of a list, in order. They are a part of the job's blob.

    Args:
        items: the records.
        type_info: their declared type; None = any Python object.
    """

    def __init__(self, items: list[Any], type_info: TypeInformation | None = None) -> None:
        self._items, self._type_info = items, type_info

    @property
    @override
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @override
    def enumerator(self) -> EnumeratorSpec:
        return EnumeratorSpec("static", {"splits": [Split("collection", {}).to_plain()]})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Any]:
        """Make the reader of the list."""
        return _CollectionReader(self._items)

    @override
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _CollectionReader(SplitQueueReader[Any]):
    def __init__(self, items: list[Any]) -> None:
        super().__init__()
        self._items = items

    def open_split(self, split: Split) -> SplitCursor[Any]:
        return _CollectionCursor(self._items, int(split.position or 0))  # type: ignore[arg-type]


class _CollectionCursor(SplitCursor[Any]):
    def __init__(self, items: list[Any], position: int) -> None:
        self._items, self._position = items, position

    def read(self, max_records: int) -> Chunk[Any]:
        values = self._items[self._position : self._position + max_records]
        self._position += len(values)
        return Chunk(values, self._position, self._position >= len(self._items))
