"""A source that reads other sources one after the other, for example first files, then Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from typing_extensions import override

from firesteel.common.typeinfo import TypeInformation
from firesteel.connectors.hybrid_enumerator import unwrap, wrap
from firesteel.core.errors import ProgramError
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Boundedness,
    End,
    EnumeratorSpec,
    NeedSplits,
    Polled,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)

__all__ = ["HybridSource", "HybridSourceBuilder"]

T = TypeVar("T")


class HybridSource(Source[T]):
    """Reads bounded sources one after the other; the last one may be unbounded.

    Made by ``HybridSource.builder(first).add_source(second).build()``. A source begins when every subtask has read all
    of its splits of the source before. Timestamps and watermarks come from the splits, so event time goes on.

    Args:
        sources: the sources, in the order of reading.

    Examples:
        ```python
        from firesteel.common import WatermarkStrategy
        from firesteel.datastream import StreamExecutionEnvironment
        from firesteel.datastream.connectors import HybridSource, NumberSequenceSource

        history, live = NumberSequenceSource(1, 2), NumberSequenceSource(3, 4)
        source = HybridSource.builder(history).add_source(live).build()
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_source(source, WatermarkStrategy.no_watermarks(), "both").execute_and_collect()))
        ```

        ```text
        [1, 2, 3, 4]
        ```
    """

    def __init__(self, sources: Sequence[Source[T]]) -> None:
        self._sources = tuple(sources)
        self.replayable = all(source.replayable for source in sources)
        self.own_watermarks = any(source.own_watermarks for source in sources)

    @staticmethod
    def builder(first_source: Source[T]) -> HybridSourceBuilder[T]:
        """A builder that begins with this source.

        Raises:
            TypeError: the argument is no source.
        """
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> Boundedness:
        """Boundedness of the last source."""
        return self._sources[-1].boundedness

    def enumerator(self) -> EnumeratorSpec:
        """The enumerators of all sources, in their order.

        Raises:
            ProgramError: a source can't be used; the message says which.
        """
        specs: list[Any] = []
        for number, source in enumerate(self._sources, 1):
            try:
                spec = source.enumerator()
            except ProgramError as error:
                raise ProgramError(f"hybrid source, source {number} of {len(self._sources)}: {error}") from error
            if not isinstance(spec, EnumeratorSpec):
                raise ProgramError(
                    f"hybrid source: source {number} of {len(self._sources)} ({type(source).__name__}) has an "
                    "enumerator of its own; a hybrid source is made of sources with built-in enumerators"
                )
            specs.append({"name": spec.name, "config": dict(spec.config)})
        return EnumeratorSpec("hybrid", {"sources": specs})

    def create_reader(self, context: ReaderContext) -> SourceReader[T]:
        """Make a reader that holds the readers of all sources."""
        readers: list[SourceReader[T]] = []
        for number, source in enumerate(self._sources, 1):
            reader = source.create_reader(context)
            if not isinstance(reader, SourceReader) or reader.checkpointed_function() is not None:
                problem = "is a SourceFunction" if isinstance(reader, SourceReader) else "reads with asyncio"
                raise ProgramError(
                    f"hybrid source: source {number} of {len(self._sources)} ({type(source).__name__}) {problem}; read "
                    "it by itself and unite the streams with union()"
                )
            refuse_coroutines("a reader of the hybrid source", reader)
            readers.append(reader)
        kind = _BlockingHybridReader if any(reader.blocking for reader in readers) else _HybridReader
        return kind(self._sources, readers, context)

    def produced_type(self) -> TypeInformation | None:
        """Type of the records of all sources; None = any Python object."""
        return self._sources[0].produced_type()

    @property
    def makes_columns(self) -> bool:
        """Whether all sources emit record batches."""
        return all(source.makes_columns for source in self._sources)

    def with_columns(self, names: Sequence[str]) -> HybridSource[T] | None:
        """The sources with these columns only; None if one of them can't leave the others out."""
        narrow = [source.with_columns(names) for source in self._sources]
        narrowed = [source for source in narrow if source is not None]
        return HybridSource(narrowed) if len(narrowed) == len(narrow) else None


class HybridSourceBuilder(Generic[T]):
    """Builds a ``HybridSource`` of sources in the order in which they are added.

    Examples:
        ```python
        from firesteel.datastream.connectors import HybridSource, NumberSequenceSource

        builder = HybridSource.builder(NumberSequenceSource(1, 2))
        source = builder.add_source(NumberSequenceSource(3, 4)).build()
        ```
    """

    def __init__(self, first_source: Source[T]) -> None:
        self._sources: list[Source[T]] = []
        self.add_source(first_source)

    def add_source(self, source: Source[T]) -> HybridSourceBuilder[T]:
        """Add a source, which is read after those before it.

        Raises:
            TypeError: the argument is no source.
            ProgramError: the source before never ends, or the records are of another type.
        """
        if not isinstance(source, Source):
            raise TypeError(f"add_source() takes a Source, not {type(source).__name__}")
        if self._sources:
            previous, number = self._sources[-1], len(self._sources)
            if previous.boundedness is not Boundedness.BOUNDED:
                raise ProgramError(
                    f"hybrid source: source {number} ({type(previous).__name__}) never ends, so none can follow it"
                )
            first, produced = self._sources[0].produced_type(), source.produced_type()
            if first != produced:
                raise ProgramError(
                    f"hybrid source: records of source {number + 1} are {produced or 'Python objects'}, and those of "
                    f"the first are {first or 'Python objects'}: all sources give one type"
                )
        self._sources.append(source)
        return self

    def build(self) -> HybridSource[T]:
        """Make the source of those that were added."""
        return HybridSource(self._sources)


class _HybridReader(SourceReader[T]):
    """Reads the splits of the earliest source that has some here. Readers are opened when they are needed."""

    def __init__(self, sources: Sequence[Source[T]], readers: list[SourceReader[T]], context: ReaderContext) -> None:
        self._sources, self._context = sources, context
        self._fresh: dict[int, SourceReader[T]] = dict(enumerate(readers))
        """Number of a source -> its reader, which is not opened yet."""
        self._open: dict[int, SourceReader[T]] = {}
        self._no_more = False

    def _reader(self, number: int) -> SourceReader[T]:
        reader = self._open.get(number)
        if reader is None:
            reader = self._fresh.pop(number, None)
            if reader is None:  # splits of a source that had ended came back
                another = self._sources[number].create_reader(self._context)
                assert isinstance(another, SourceReader)
                reader = another
            reader.open()
            self._open[number] = reader
        return reader

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Give each split to the reader of its source."""
        by_source: dict[int, list[Split]] = {}
        for split in splits:
            if "source" not in split.data:
                raise ProgramError(f"split {split.id!r} was not written by a hybrid source")
            number, inner = unwrap(split)
            by_source.setdefault(number, []).append(inner)
        for number, inner_splits in by_source.items():
            self._reader(number).add_splits(inner_splits)

    def no_more_splits(self) -> None:
        """Note that no further splits will come."""
        self._no_more = True

    def pause_splits(self, split_ids: Sequence[str]) -> None:
        """Do not poll these splits until they are resumed."""
        for number, ids in _by_source(split_ids).items():
            if number in self._open:
                self._open[number].pause_splits(ids)

    def resume_splits(self, split_ids: Sequence[str]) -> None:
        """Poll these splits again."""
        for number, ids in _by_source(split_ids).items():
            if number in self._open:
                self._open[number].resume_splits(ids)

    def snapshot(self) -> list[Split]:
        """All unfinished splits with their current positions."""
        return [wrap(number, split) for number, reader in sorted(self._open.items()) for split in reader.snapshot()]

    def ready_for_checkpoint(self) -> bool:
        """Whether all readers are ready."""
        return all([reader.ready_for_checkpoint() for reader in self._open.values()])

    @override
    def checkpoint_taken(self) -> None:
        for reader in self._open.values():
            reader.checkpoint_taken()

    def poll(self, max_records: int) -> Polled[T]:
        """Poll the reader of the earliest source that has splits here."""
        while self._open:
            number = min(self._open)
            reader = self._open[number]
            answer = reader.poll(max_records)
            if isinstance(answer, SourceBatch):
                return replace(answer, split_id=f"{number}/{answer.split_id}")
            if isinstance(answer, Wait):
                return answer
            if isinstance(answer, NeedSplits):
                if len(self._open) == 1 and not self._no_more:
                    return NEED_SPLITS
                reader.no_more_splits()  # another source has begun, or none is left
                continue
            if isinstance(answer, End):
                del self._open[number]
                reader.close()
                continue
            raise ProgramError(f"poll() of {type(reader).__name__} returned {type(answer).__name__}")
        return END if self._no_more else NEED_SPLITS

    @override
    def close(self) -> None:
        readers = [*self._open.values(), *self._fresh.values()]
        self._open.clear()
        self._fresh.clear()
        for reader in readers:
            reader.close()


class _BlockingHybridReader(_HybridReader[T]):
    blocking = True


def _by_source(split_ids: Sequence[str]) -> dict[int, list[str]]:
    ids_by_source: dict[int, list[str]] = {}
    for split_id in split_ids:
        number, _, inner = split_id.partition("/")
        ids_by_source.setdefault(int(number), []).append(inner)
    return ids_by_source
