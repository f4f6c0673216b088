"""Tests a source against the source contract (``firesteel.functions.source``)."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from firesteel.core.errors import CheckpointVersionError, ProgramError
from firesteel.expressions.values import records_of
from firesteel.functions.source import (
    AsyncSourceReader,
    Boundedness,
    End,
    NeedSplits,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    Split,
    Wait,
)
from firesteel.runtime.operator_base.split_codec import SplitCodec
from firesteel.testing.clock import ManualClock
from firesteel.testing.enumerator_conformance import Driven, check_enumerator, drive
from firesteel.testing.rules import require

_LONGEST: Final = 100_000
"""Number of polls without an end after which a source counts as hanging."""


class ReaderStub(ReaderContext):
    """Context of a reader that a kit or test drives."""

    def __init__(self, subtask: int, parallelism: int, clock: ManualClock) -> None:
        self._subtask, self._parallelism, self._clock = subtask, parallelism, clock

    @property
    def subtask_index(self) -> int:
        """The one that the context was made with."""
        return self._subtask

    @property
    def parallelism(self) -> int:
        """The one that the context was made with."""
        return self._parallelism

    def monotonic(self) -> float:
        """Return the seconds of the clock."""
        return self._clock.monotonic()

    def wake_up(self) -> None:
        """Do nothing: the driver polls anyway."""


class _Run:
    """One subtask of the source, driven as the runtime does it."""

    def __init__(self, source: Source[Any], subtask: int, parallelism: int, enumerator: Driven) -> None:
        self._type, self._codec = source.produced_type(), SplitCodec("source", source)
        self._subtask, self._parallelism, self._enumerator = subtask, parallelism, enumerator
        self._clock = ManualClock()
        self.reader: SourceReader[Any] | AsyncSourceReader[Any]
        self.reader = source.create_reader(ReaderStub(subtask, parallelism, self._clock))
        self.reader.open()
        self.records: list[Any] = []
        self.ended = self._told = False
        self._polls = 0

    def step(self, max_records: int) -> SourceBatch[Any] | None:
        """Poll once, then supply splits or move the clock as the answer requires; return the batch, if it was one."""
        self._polls += 1
        require(self._polls < _LONGEST, f"no end after {_LONGEST} polls")
        polled: Any = self.reader.poll(max_records)
        answer = asyncio.run(_awaited(polled)) if inspect.isawaitable(polled) else polled
        if isinstance(answer, SourceBatch):
            self._take(answer, max_records)
            return answer
        if isinstance(answer, NeedSplits):
            require(not self._told, "NEED_SPLITS after no_more_splits(): the end is END")
            self._supply()
        elif isinstance(answer, Wait):
            require(answer.seconds is None or answer.seconds >= 0, f"Wait({answer.seconds}) is negative")
            self._clock.advance(answer.seconds or 0.0)
        elif isinstance(answer, End):
            require(self._told, "END before no_more_splits()")
            self.ended = True
        else:
            raise AssertionError(f"poll() returned {answer!r}, which is not an answer of the contract")
        return None

    def _supply(self) -> None:
        splits = self._enumerator.next_splits(self._subtask, self._parallelism)
        for split in splits:
            _travelled(self._codec, split)
        if splits:
            self.reader.add_splits(splits)
        elif self._enumerator.exhausted_for(self._subtask):
            self.reader.no_more_splits()
            self._told = True

    def _take(self, batch: SourceBatch[Any], max_records: int) -> None:
        columnar = isinstance(batch.values, pa.RecordBatch)
        rows = records_of(batch.values, self._type) if columnar else list(batch.values)
        require(len(rows) <= max_records, f"poll({max_records}) gave {len(rows)} records")
        if batch.timestamps is not None:
            require(len(batch.timestamps) == len(rows), "there must be one timestamp for each record")
        require(json.loads(json.dumps(batch.position)) == batch.position, f"position {batch.position!r} is not plain")
        unfinished = {split.id: split for split in self.reader.snapshot()}
        if batch.split_finished:
            require(batch.split_id not in unfinished, f"split {batch.split_id!r} is finished but in the snapshot")
        else:
            require(
                batch.split_id in unfinished and unfinished[batch.split_id].position == batch.position,
                f"the snapshot does not hold split {batch.split_id!r} at the position of its last batch",
            )
        self.records.extend(rows)


def check_source(
    make_source: Callable[[], Source[Any]],
    expected: Iterable[Any],
    *,
    parallelisms: Sequence[int] = (1, 2, 3),
    batch_sizes: Sequence[int] = (1, 7, 1000),
) -> None:
    """Read a bounded source in many ways, and compare its records with those expected.

    It is read with several parallelisms and batch sizes; stopped after every poll and resumed from its snapshot by a
    new reader; paused and resumed; given splits of an unknown version; and pickled. If it has an enumerator of its own,
    that is stopped after each request, while splits are on their way, and resumed from its state.

    Args:
        make_source: makes the source; called often.
        expected: all records of the source, in any order.
        parallelisms: parallelisms to read it with.
        batch_sizes: largest numbers of records to poll.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    in_order = _sorted(expected)
    source = make_source()
    require(source.boundedness is Boundedness.BOUNDED, "this kit checks bounded sources")
    pickle.loads(pickle.dumps(source))
    for parallelism in parallelisms:
        for size in batch_sizes:
            records = _read_all(make_source(), parallelism, size)
            require(
                _sorted(records) == in_order,
                _difference(f"parallelism {parallelism}, batches of {size}", records, in_order),
            )
    polls = _polls_of(make_source())
    for stop in sorted({*range(min(polls, 12)), polls // 2, polls - 1}):
        records = _read_with_restore(make_source(), stop)
        require(
            _sorted(records) == in_order, _difference(f"continued from a snapshot after poll {stop}", records, in_order)
        )
    records = _read_with_pauses(make_source())
    require(_sorted(records) == in_order, _difference("paused and resumed", records, in_order))
    if make_source().enumerator() is None:
        check_enumerator(make_source)
    if make_source().get_split_serializer() is None:
        _check_versions(make_source())


def _travelled(codec: SplitCodec, split: Split) -> Split:
    """Return a split after its conversion to plain data and back."""
    try:
        plain = json.loads(json.dumps(codec.to_plain(split)))
    except ProgramError as error:
        raise AssertionError(str(error)) from error
    return codec.from_plain(Split.from_plain(plain))


def _read_all(source: Source[Any], parallelism: int, size: int) -> list[Any]:
    enumerator = drive(source)
    runs = [_Run(source, subtask, parallelism, enumerator) for subtask in range(parallelism)]
    while not all(run.ended for run in runs):
        for run in runs:
            if not run.ended:
                run.step(size)
    for run in runs:
        run.reader.close()
    return [record for run in runs for record in run.records]


def _polls_of(source: Source[Any]) -> int:
    run = _Run(source, 0, 1, drive(source))
    count = 0
    while not run.ended:
        run.step(3)
        count += 1
    run.reader.close()
    return count


def _read_with_restore(source: Source[Any], stop: int) -> list[Any]:
    enumerator = drive(source)
    run = _Run(source, 0, 1, enumerator)
    for _ in range(stop):
        if not run.ended:
            run.step(3)
    splits = [_travelled(SplitCodec("source", source), split) for split in run.reader.snapshot()]
    state = enumerator.snapshot()
    run.reader.close()
    resumed_enumerator = drive(source, state)
    resumed = _Run(source, 0, 1, resumed_enumerator)
    if splits:
        resumed.reader.add_splits(splits)
    while not resumed.ended:
        resumed.step(3)
    resumed.reader.close()
    return run.records + resumed.records


def _read_with_pauses(source: Source[Any]) -> list[Any]:
    run = _Run(source, 0, 1, drive(source))
    turn = 0
    while not run.ended:
        turn += 1
        batch = run.step(2)
        if batch is not None and turn % 3 == 0:
            run.reader.pause_splits([batch.split_id])
            for _ in range(4):
                next_batch = run.step(2) if not run.ended else None
                require(next_batch is None or next_batch.split_id != batch.split_id, "a paused split was read")
            run.reader.resume_splits([batch.split_id])
    run.reader.close()
    return run.records


def _check_versions(source: Source[Any]) -> None:
    enumerator = drive(source)
    splits = enumerator.next_splits(0, 1)
    if not splits:
        return
    run = _Run(source, 0, 1, enumerator)
    strange = Split(splits[0].id, splits[0].data, splits[0].position, splits[0].version + 1000)
    try:
        run.reader.add_splits([strange])
    except (ProgramError, CheckpointVersionError):
        return
    finally:
        run.reader.close()
    raise AssertionError("add_splits() took a split of an unknown version; it must raise CheckpointVersionError")


async def _awaited(value: Any) -> Any:
    return await value


def _sorted(records: Iterable[Any]) -> list[Any]:
    return sorted(records, key=repr)


def _difference(how: str, records: list[Any], expected: list[Any]) -> str:
    missing, extra = list(expected), []
    for record in records:
        try:
            missing.remove(record)
        except ValueError:
            extra.append(record)
    return f"{how}: {len(records)} records instead of {len(expected)}; missing {missing[:5]}, not expected {extra[:5]}"
