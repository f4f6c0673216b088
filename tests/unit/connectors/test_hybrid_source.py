"""Sources that are read one after the other: order, checkpoints, what can't be put together."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from firesteel.common.time import Duration
from firesteel.common.typeinfo import Types
from firesteel.connectors.collection import CollectionSource
from firesteel.connectors.data_generator import DataGeneratorSource
from firesteel.connectors.enumerators import create_enumerator
from firesteel.connectors.file_source import FileSource, StreamFormat
from firesteel.connectors.hybrid_source import HybridSource
from firesteel.connectors.number_sequence import NumberSequenceSource
from firesteel.connectors.source_function import SourceFunctionSource
from firesteel.core.errors import ProgramError
from firesteel.functions.source import (
    END,
    NEED_SPLITS,
    Boundedness,
    BuiltInEnumerator,
    ReaderContext,
    Source,
    SourceBatch,
)
from firesteel.functions.source_function import SourceFunction
from firesteel.testing import check_source


def lines(*paths: Path) -> FileSource:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths).set_split_size(20).build()


def test_all_records_once_in_every_way(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("".join(f"{name}{number}\n" for number in range(17)))

    def make() -> Source[Any]:
        builder = HybridSource.builder(lines(tmp_path / "a")).add_source(lines(tmp_path / "b"))
        return builder.add_source(lines(tmp_path / "c")).build()

    check_source(make, [f"{name}{number}" for name in "abc" for number in range(17)])
    numbers = HybridSource.builder(NumberSequenceSource(0, 9)).add_source(NumberSequenceSource(5, 20))
    check_source(numbers.build, [*range(10), *range(5, 21)])
    check_source(HybridSource.builder(CollectionSource([])).add_source(CollectionSource([1])).build, [1])


def enumerator_of(source: Source[Any], state: Any = None) -> BuiltInEnumerator:
    spec = source.enumerator()
    assert spec is not None
    enumerator = create_enumerator(spec.name, json.loads(json.dumps(dict(spec.config))))
    if state is not None:
        enumerator.restore(json.loads(json.dumps(state)))
    return enumerator


class Subtask(ReaderContext):
    def __init__(self, index: int, parallelism: int) -> None:
        self._index, self._parallelism = index, parallelism

    @property
    def subtask_index(self) -> int:
        return self._index

    @property
    def parallelism(self) -> int:
        return self._parallelism

    def monotonic(self) -> float:
        return 0.0

    def wake_up(self) -> None: ...


@pytest.mark.parametrize("seed", range(40))
def test_a_source_begins_when_all_subtasks_have_read_the_one_before(seed: int) -> None:
    chance = random.Random(seed)
    counts = [chance.randrange(1, 30) for _ in range(3)]
    bounds = [sum(counts[:number]) for number in range(4)]
    builder = HybridSource.builder(NumberSequenceSource(0, bounds[1] - 1))
    for low, high in pairwise(bounds[1:]):
        builder.add_source(NumberSequenceSource(low, high - 1))
    source = builder.build()
    parallelism = chance.randrange(1, 4)
    enumerator = enumerator_of(source)
    readers = [source.create_reader(Subtask(i, parallelism)) for i in range(parallelism)]
    read: list[int] = []
    ended: set[int] = set()
    while len(ended) < parallelism:
        if chance.random() < 0.1:  # all go on from a checkpoint
            splits = [reader.snapshot() for reader in readers]
            enumerator = enumerator_of(source, enumerator.snapshot())
            for reader in readers:
                reader.close()
            readers = [source.create_reader(Subtask(i, parallelism)) for i in range(parallelism)]
            for reader, own in zip(readers, splits, strict=True):
                reader.add_splits(own)
            ended.clear()
        number = chance.randrange(parallelism)
        if number in ended:
            continue
        answer = readers[number].poll(3)
        if isinstance(answer, SourceBatch):
            first = answer.values[0]
            missing = {n for n in range(max(b for b in bounds if b <= first)) if n not in read}
            assert not missing, f"{first} was read before {sorted(missing)[:5]}"
            read += answer.values
        elif answer is NEED_SPLITS:
            new_splits = enumerator.next_splits(number, parallelism)
            if new_splits:
                readers[number].add_splits(new_splits)
            elif enumerator.exhausted:
                readers[number].no_more_splits()
        else:
            assert answer is END
            ended.add(number)
    assert sorted(read) == list(range(bounds[3]))


def test_a_subtask_that_is_restarted_alone_holds_the_next_source_back() -> None:
    source = HybridSource.builder(CollectionSource(["a"])).add_source(CollectionSource(["b"])).build()
    enumerator = enumerator_of(source)
    (first,) = enumerator.next_splits(0, 2)
    assert enumerator.next_splits(1, 2) == []  # has read all it will
    enumerator.reader_reset(1)
    assert enumerator.next_splits(0, 2) == []
    assert enumerator.next_splits(0, 2) == [], "subtask 1 reads again what it had at the checkpoint"
    enumerator.add_splits_back([first])
    assert not enumerator.exhausted
    assert enumerator.next_splits(1, 2) == [first]
    assert enumerator.next_splits(0, 2) == []
    (second,) = enumerator.next_splits(1, 2)
    assert second.data["source"] == 1
    enumerator.add_splits_back([first])  # of a source that is over
    assert not enumerator.exhausted
    assert enumerator.next_splits(0, 2) == [first]
    reader = source.create_reader(Subtask(0, 2))
    reader.add_splits([second])
    reader.add_splits([first])
    polled = reader.poll(5)
    assert isinstance(polled, SourceBatch)
    assert (polled.values, polled.split_id) == (["a"], first.id)


def test_files_are_listed_when_their_source_begins(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old" / "a").write_text("1\n")
    last = FileSource.for_record_stream_format(StreamFormat.text_line_format(), tmp_path / "new")
    watched = last.monitor_continuously(Duration.of_seconds(1)).build()
    source = HybridSource.builder(lines(tmp_path / "old")).add_source(watched).build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    assert source.produced_type() == Types.STRING()
    enumerator = enumerator_of(source)
    assert len(enumerator.next_splits(0, 1)) == 1
    (tmp_path / "old" / "a").unlink()
    (tmp_path / "new" / "b").write_text("2\n")
    (split,) = enumerator.next_splits(0, 1)
    assert split.id.endswith("new/b:0")
    again = enumerator_of(source, enumerator.snapshot())  # the first source is gone, and not needed any more
    assert again.next_splits(0, 1) == []
    assert not again.exhausted


class Endless(SourceFunction[int]):
    def run(self, ctx: Any) -> None: ...

    def cancel(self) -> None: ...


def test_what_can_not_be_put_together(tmp_path: Path) -> None:
    numbers = NumberSequenceSource(0, 3)
    builder = HybridSource.builder(numbers)
    with pytest.raises(TypeError, match=r"add_source\(\) takes a Source, not list"):
        builder.add_source([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"records of source 2 are .*, and those of the first are"):
        builder.add_source(CollectionSource(["a"]))
    endless = HybridSource.builder(SourceFunctionSource(Endless()))
    with pytest.raises(ProgramError, match=r"source 1 .SourceFunctionSource. never ends, so none can follow it"):
        endless.add_source(CollectionSource([1]))
    with pytest.raises(ProgramError, match=r"source 1 of 1 .SourceFunctionSource. is a SourceFunction"):
        endless.build().create_reader(Subtask(0, 1))
    missing = enumerator_of(HybridSource([CollectionSource([]), lines(tmp_path / "none")]))
    assert missing.next_splits(0, 1)
    with pytest.raises(ProgramError, match=r"source 2 of 2: .*none' does not exist"):
        missing.next_splits(0, 1)
    state = enumerator_of(HybridSource.builder(numbers).add_source(numbers).build()).snapshot()
    with pytest.raises(ProgramError, match="taken with the sources numbers, numbers, and there are static"):
        enumerator_of(HybridSource.builder(CollectionSource([1])).build(), state)
    assert HybridSource.builder(DataGeneratorSource(str, 3)).build().replayable
