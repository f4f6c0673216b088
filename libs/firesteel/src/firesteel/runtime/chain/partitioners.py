"""How an output chooses the channel of each record. All take whole chunks.

Round-robin is exact for each record, as in Flink, and still costs no work for each: channel c of n gets every n-th
record of a chunk (a slice with a stride), starting where the chunk before left off. The order of records within a
channel is kept.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from operator import not_
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from firesteel.common.own_copies import own_copies
from firesteel.common.types import Row, make_row
from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError, TaskInterrupt
from firesteel.core.short_repr import short_repr
from firesteel.expressions.keys import ColumnKey, ManyKeys
from firesteel.expressions.values import VALUES, values_of
from firesteel.functions.functions import KeySelector, Partitioner
from firesteel.graph.key_groups import KeyGroupAssigner
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.exchange.channels import OutputChannel
from firesteel.runtime.operator_base.base import UserCode, method_of
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of, take
from firesteel.runtime.records.dictionaries import RepeatedTexts, with_form
from firesteel.runtime.records.rows import to_list, to_rows

Routed = Iterable[tuple[OutputChannel, Batch]]
_SCANNED: Final = 4
"""Channels; of so few, each is looked for on its own."""


class Output(UserCode, ABC):
    """An edge that leaves a chain.

    Args:
        name: of the operator whose results it carries, for errors.
        channels: one for each consumer it is connected to, ascending.
    """

    def __init__(self, name: str, channels: Sequence[OutputChannel]) -> None:
        self.name = name
        self.channels = list(channels)

    @property
    def takes_columns(self) -> bool:
        """Whether it routes columns as they are."""
        return True

    @abstractmethod
    def route(self, batch: Batch) -> Routed:
        """Batches for channels; may run the user's key selector. The batch is not changed."""


class NarrowedOutput(Output):
    """Leaves out columns that nobody downstream reads, then does as another one.

    Args:
        output: partitions what is left.
        names, indexes: of the columns that stay.
    """

    def __init__(self, output: Output, names: Sequence[str], indexes: Sequence[int]) -> None:
        super().__init__(output.name, output.channels)
        self._output, self._names, self._indexes = output, tuple(names), tuple(indexes)

    @property
    def takes_columns(self) -> bool:
        """As the other one."""
        return self._output.takes_columns

    def route(self, batch: Batch) -> Routed:
        """The columns that stay, or rows of them."""
        values = batch.values
        if isinstance(values, pa.RecordBatch):
            return self._output.route(batch.with_values(values.select(list(self._names))))
        return self._output.route(batch.with_values([self._narrow(value) for value in values]))

    def _narrow(self, value: Any) -> Any:
        fields = tuple([value[index] for index in self._indexes])
        if value.__class__ is not Row:
            return fields
        row = make_row(self._names, fields)
        row.set_row_kind(value.get_row_kind())
        return row


class SingleOutput(Output):
    """FORWARD, GLOBAL, and whatever has one channel only."""

    def route(self, batch: Batch) -> Routed:
        """All to the first channel."""
        return ((self.channels[0], batch),)


class BroadcastOutput(Output):
    """Each record to every channel, as an object of its own if it can be changed."""

    def route(self, batch: Batch) -> Routed:
        """The batch to each channel."""
        values = batch.values
        first, *others = self.channels
        copies = [
            (channel, batch.with_values(own_copies(values) if isinstance(values, list) else values))
            for channel in others
        ]
        return [(first, batch), *copies]


class RoundRobinOutput(Output):
    """REBALANCE and RESCALE: one record to each channel in turn, from a random start."""

    def __init__(self, name: str, channels: Sequence[OutputChannel], start: int) -> None:
        super().__init__(name, channels)
        self._next = start % len(self.channels)

    def route(self, batch: Batch) -> Routed:
        """Every n-th record to each channel."""
        count, size, start = len(self.channels), len(batch), self._next
        self._next = (start + size) % count
        values, timestamps, kinds = batch.values, batch.timestamps, batch.kinds
        if not isinstance(values, list):
            return columns_to_channels(batch, (np.arange(size) + start) % count, self.channels)
        routed = []
        for offset in range(min(count, size)):
            stamps = None if timestamps is None else timestamps[offset::count]
            part = Batch(values[offset::count], stamps, None if kinds is None else kinds[offset::count])
            routed.append((self.channels[(start + offset) % count], part))
        return routed


class _Bucketed(Output):
    """Each record to a channel of its own choice."""

    def route(self, batch: Batch) -> Routed:
        """A batch for each channel that has records."""
        if isinstance(batch.values, pa.RecordBatch):
            chosen = self.targets_of_columns(batch.values)
            if chosen is not None:
                return columns_to_channels(batch, chosen, self.channels)
            batch = to_rows(batch)
        values: list[Any] = batch.values
        targets = self.targets(values)
        count = len(self.channels)
        none = [None] * count
        parts = bucket(values, targets, count)
        stamps = none if batch.timestamps is None else bucket(to_list(batch.timestamps) or [], targets, count)
        kinds = none if batch.kinds is None else bucket(to_list(batch.kinds) or [], targets, count)
        return [
            (channel, Batch(part, stamp, kind))
            for channel, part, stamp, kind in zip(self.channels, parts, stamps, kinds, strict=True)
            if part
        ]

    @abstractmethod
    def targets(self, values: list[Any]) -> list[int]:
        """Position in ``channels`` for each record."""

    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
        """The same for each row; None if rows have to be made for it."""
        return None


class ShuffleOutput(_Bucketed):
    """SHUFFLE: a random channel for each record."""

    def __init__(self, name: str, channels: Sequence[OutputChannel], rng: random.Random) -> None:
        super().__init__(name, channels)
        self._choices, self._range = rng.choices, range(len(self.channels))

    def targets(self, values: list[Any]) -> list[int]:
        return self._choices(self._range, k=len(values))

    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any]:
        return np.array(self._choices(self._range, k=batch.num_rows))


class _KeyedOutput(_Bucketed):
    def __init__(self, name: str, channels: Sequence[OutputChannel], key_selector: Callable[[Any], Any] | None) -> None:
        super().__init__(name, channels)
        self._selector = key_selector
        self._key = method_of(key_selector, KeySelector, "get_key")

    def keys(self, values: list[Any]) -> list[Any]:
        """The key of each record."""
        if isinstance(self._selector, ManyKeys):
            return list(self._selector.keys_of(values))
        return call_each(self._key, values)


class HashOutput(_KeyedOutput):
    """HASH: the channel that owns the key's key group.

    Args:
        dictionaries: a key that is one column of texts, which repeat, goes away as a dictionary.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[OutputChannel],
        key_selector: Callable[[Any], Any] | None,
        assigner: KeyGroupAssigner,
        *,
        dictionaries: bool = False,
    ) -> None:
        super().__init__(name, channels, key_selector)
        self._assigner = assigner
        one_column = type(key_selector) is ColumnKey and len(key_selector.indexes) == 1
        self._repeated = RepeatedTexts() if dictionaries and one_column else None

    def route(self, batch: Batch) -> Routed:
        """A batch for each channel that has records."""
        values = batch.values
        if self._repeated is not None and isinstance(values, pa.RecordBatch):
            assert isinstance(self._selector, ColumnKey)
            (index,) = self._selector.indexes
            if VALUES not in (values.schema.field(index).metadata or {}):
                encoded = self._repeated.encoded(values.column(index))
                if encoded is not None:
                    return self._route_encoded(batch, index, encoded)
        return super().route(batch)

    def _route_encoded(self, batch: Batch, index: int, encoded: pa.DictionaryArray) -> Routed:
        """Each different key is looked at once; each channel gets a dictionary of its own keys."""
        codes, keys = encoded.indices.to_numpy(), encoded.dictionary
        target_of_key = self._assigner.assign_columns([keys])
        by_channel = np.argsort(target_of_key, kind="stable")
        counts = np.bincount(target_of_key, minlength=len(self.channels))
        starts = np.cumsum(counts) - counts
        own_code = np.empty(len(keys), np.int32)
        own_code[by_channel] = np.arange(len(keys)) - np.repeat(starts, counts)
        keys = keys.take(pa.array(by_channel))
        coded = with_form(columns_of(batch), index, pa.array(own_code.take(codes)))
        routed = columns_to_channels(batch.with_values(coded), target_of_key.take(codes), self.channels)
        bounds = dict(zip(map(id, self.channels), zip(starts.tolist(), counts.tolist(), strict=True), strict=True))
        found = []
        for channel, part in routed:
            rows = columns_of(part)
            own = pa.DictionaryArray.from_arrays(rows.column(index), keys.slice(*bounds[id(channel)]), safe=False)
            found.append((channel, part.with_values(with_form(rows, index, own))))
        return found

    def targets(self, values: list[Any]) -> list[int]:
        keys = self.keys(values)
        try:
            return self._assigner.assign(keys)
        except TaskInterrupt:
            raise
        except BaseException as error:  # of a key's own __hash__ or __eq__, too
            refusal = error
        # Outside of the handler, or the same error would be shown twice: as itself and as its own context.
        for value, key in zip(values, keys, strict=True):  # noqa: B007 - ``value`` is read from the traceback
            self._assigner(key)
        raise refusal

    @property
    def takes_columns(self) -> bool:
        """If the key is made of columns."""
        return isinstance(self._selector, ColumnKey)

    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
        """By key group, if the key is made of columns."""
        if not isinstance(self._selector, ColumnKey):
            return None
        arrays, fields = self._selector.arrays(batch), self._selector.fields(batch.schema)
        return self.targets_of_keys(arrays, fields, batch.num_rows)

    def targets_of_keys(self, arrays: Sequence[pa.Array], fields: Sequence[pa.Field], count: int) -> npt.NDArray[Any]:
        """By key group, of so many keys that are there as columns; without columns there is one key for all."""
        columns = list(zip(arrays, fields, strict=True))
        if not columns:
            return np.full(count, self._assigner.assign([()])[0])
        if all(VALUES not in (field.metadata or {}) for _, field in columns):
            return self._assigner.assign_columns([column for column, _ in columns])
        keys = [values_of(*column) for column in columns]
        return np.array(self._assigner.assign(keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))))


class CustomOutput(_KeyedOutput):
    """CUSTOM: what the user's partitioner says for the key."""

    def __init__(
        self,
        name: str,
        channels: Sequence[OutputChannel],
        key_selector: Callable[[Any], Any] | None,
        partition: Callable[[Any, int], int] | None,
    ) -> None:
        super().__init__(name, channels, key_selector)
        self._partition = method_of(partition, Partitioner, "partition")

    @property
    def takes_columns(self) -> bool:
        return False

    def targets(self, values: list[Any]) -> list[int]:
        """As the user says; checked."""
        partition, count = self._partition, len(self.channels)
        targets = []
        for value, key in zip(values, self.keys(values), strict=True):  # noqa: B007
            target = partition(key, count)
            if target.__class__ is not int or not 0 <= target < count:
                if isinstance(target, bool) or not hasattr(target, "__index__") or not 0 <= target < count:
                    raise ProgramError(
                        f"partition_custom: the partitioner returned {short_repr(target, 80)} for key "
                        f"{short_repr(key, 80)}; it has to return an int from 0 to {count - 1}"
                    )
                target = target.__index__()
            targets.append(target)
        return targets


def columns_to_channels(batch: Batch, targets: npt.NDArray[Any], channels: Sequence[OutputChannel]) -> Routed:
    """The rows of each channel, in order; nothing is copied if all go to one."""
    if len(channels) > _SCANNED:
        return _sorted_to_channels(batch, targets, channels)
    routed = []
    for position, channel in enumerate(channels):
        chosen = np.flatnonzero(targets == position)
        if len(chosen) == len(batch):
            return [(channel, batch)]
        if len(chosen):
            routed.append((channel, take(batch, chosen)))
    return routed


def _sorted_to_channels(batch: Batch, targets: npt.NDArray[Any], channels: Sequence[OutputChannel]) -> Routed:
    """The same for many channels: rows are brought into their order once, and each channel gets a slice."""
    narrow = targets.astype(np.uint16 if len(channels) <= 1 << 16 else np.uint32)  # sorted by radix
    counts = np.bincount(targets, minlength=len(channels)).tolist()
    if max(counts) == len(batch):
        return [(channels[counts.index(len(batch))], batch)]
    ordered = take(batch, np.argsort(narrow, kind="stable"))
    routed, start = [], 0
    for channel, count in zip(channels, counts, strict=True):
        if count:
            routed.append((channel, ordered.slice(start, start + count)))
            start += count
    return routed


def bucket(values: list[Any], targets: list[int], count: int) -> list[list[Any]]:
    """Values by target, in order."""
    if count == 2:
        return [list(compress(values, map(not_, targets))), list(compress(values, targets))]
    parts: list[list[Any]] = [[] for _ in range(count)]
    appends = [part.append for part in parts]
    for value, target in zip(values, targets, strict=True):
        appends[target](value)
    return parts


def create_output(
    spec: OutputSpec,
    name: str,
    channels: Sequence[OutputChannel],
    max_parallelism: int,
    rng: random.Random,
    *,
    dictionaries: bool = False,
) -> Output:
    """The output for an edge.

    Args:
        spec: of the edge.
        name: of the operator in front of it.
        channels: as ``firesteel.graph.physical.downstream_channels`` lists them.
        max_parallelism: of the consumer; the number of key groups.
        rng: for random starts and SHUFFLE.
        dictionaries: who reads the channels makes plain columns of dictionaries (``ChainExecutor`` does).
    """
    if spec.columns is not None:
        narrow = replace(spec, columns=None)
        whole = create_output(narrow, name, channels, max_parallelism, rng, dictionaries=dictionaries)
        return NarrowedOutput(whole, *spec.columns)
    kind, count = spec.partitioner, len(channels)
    if kind is PartitionerKind.CUSTOM:
        return CustomOutput(name, channels, spec.key_selector, spec.partition)
    # With one channel nobody has to know the key; but what is wrong with it is an error at any parallelism.
    looks_at_keys = kind is PartitionerKind.HASH and not spec.reader_has_keys
    if (count == 1 and not looks_at_keys) or kind in (PartitionerKind.FORWARD, PartitionerKind.GLOBAL):
        return SingleOutput(name, channels)
    if kind is PartitionerKind.HASH:
        assigner = KeyGroupAssigner(count, max_parallelism)
        return HashOutput(name, channels, spec.key_selector, assigner, dictionaries=dictionaries)
    if kind is PartitionerKind.BROADCAST:
        return BroadcastOutput(name, channels)
    if kind is PartitionerKind.SHUFFLE:
        return ShuffleOutput(name, channels, rng)
    return RoundRobinOutput(name, channels, rng.randrange(count))
