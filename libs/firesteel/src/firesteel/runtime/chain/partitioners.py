"""Partitioners: they choose the channel of each record, for a whole batch at a time.

Round-robin is exact for each record, as in Flink, and yet costs no work for each: channel c of n gets every n-th record
of a batch (a slice with a stride), beginning where the batch before ended. Records within a channel keep their order.
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
from typing_extensions import override

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
from firesteel.runtime.chain.hot_keys import KeySketch
from firesteel.runtime.exchange.channels import OutputChannel
from firesteel.runtime.operator_base.base import method_of
from firesteel.runtime.operator_base.sites import UserCode
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.columns import columns_of, take
from firesteel.runtime.records.dictionaries import RepeatedTexts, with_form
from firesteel.runtime.records.rows import to_list, to_rows

Routed = Iterable[tuple[OutputChannel, Batch]]
_SCANNED: Final = 4
"""Up to this many channels the rows of each are searched for by themselves; beyond, rows are sorted once for all."""


class Output(UserCode, ABC):
    """An edge that leaves a chain.

    Args:
        name: name of the operator whose results the edge carries, for errors.
        channels: one channel for each subtask downstream to which it is connected, in ascending order.

    Attributes:
        sketch: counts the most frequent keys; None = the output looks at no keys, or nobody wants to know them.
        target: id of the vertex that reads the edge; empty = not known.
    """

    sketch: KeySketch | None = None
    target = ""

    def __init__(self, name: str, channels: Sequence[OutputChannel]) -> None:
        self.name = name
        self.channels = list(channels)

    @property
    def takes_columns(self) -> bool:
        """Whether the output routes columns; if not, they are converted to rows."""
        return True

    def drop_sketch(self) -> None:
        """Stop counting the keys of records for the dashboard."""
        self.sketch = None

    @abstractmethod
    def route(self, batch: Batch) -> Routed:
        """Divide a batch, which is not changed, among the channels; may run the user's key selector."""


class NarrowedOutput(Output):
    """Leaves out columns that nobody downstream reads, and passes the others to another output.

    Args:
        output: partitions the narrowed batches.
        names, indexes: names and positions of the columns that stay.
    """

    def __init__(self, output: Output, names: Sequence[str], indexes: Sequence[int]) -> None:
        super().__init__(output.name, output.channels)
        self.sketch = output.sketch
        self._output, self._names, self._indexes = output, tuple(names), tuple(indexes)

    @override
    def drop_sketch(self) -> None:
        super().drop_sketch()
        self._output.drop_sketch()

    @property
    @override
    def takes_columns(self) -> bool:
        return self._output.takes_columns

    @override
    def route(self, batch: Batch) -> Routed:
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
    """FORWARD, GLOBAL, and any edge with a single channel: all records go to the first channel."""

    @override
    def route(self, batch: Batch) -> Routed:
        return ((self.channels[0], batch),)


class BroadcastOutput(Output):
    """BROADCAST: each record goes to every channel, mutable ones as a separate copy for each."""

    @override
    def route(self, batch: Batch) -> Routed:
        values = batch.values
        first, *others = self.channels
        copies = [
            (channel, batch.with_values(own_copies(values) if isinstance(values, list) else values))
            for channel in others
        ]
        return [(first, batch), *copies]


class RoundRobinOutput(Output):
    """REBALANCE and RESCALE: records go to the channels in turn, from a random first one."""

    def __init__(self, name: str, channels: Sequence[OutputChannel], start: int) -> None:
        super().__init__(name, channels)
        self._next = start % len(self.channels)

    @override
    def route(self, batch: Batch) -> Routed:
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
    """An output that computes the channel of each record."""

    @override
    def route(self, batch: Batch) -> Routed:
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
        """Compute the position in ``channels`` for each record."""

    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
        """Like ``targets``, for the rows of columns; None if these have to be converted to rows for it."""
        return None


class ShuffleOutput(_Bucketed):
    """SHUFFLE: each record goes to a random channel."""

    def __init__(self, name: str, channels: Sequence[OutputChannel], rng: random.Random) -> None:
        super().__init__(name, channels)
        self._choices, self._range = rng.choices, range(len(self.channels))

    def targets(self, values: list[Any]) -> list[int]:
        return self._choices(self._range, k=len(values))

    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any]:
        return np.array(self._choices(self._range, k=batch.num_rows))


class _KeyedOutput(_Bucketed):
    """An output that computes the channel of a record from its key."""

    def __init__(self, name: str, channels: Sequence[OutputChannel], key_selector: Callable[[Any], Any] | None) -> None:
        super().__init__(name, channels)
        self._selector = key_selector
        self._key = method_of(key_selector, KeySelector, "get_key")

    def keys(self, values: list[Any]) -> list[Any]:
        if isinstance(self._selector, ManyKeys):
            return list(self._selector.keys_of(values))
        return call_each(self._key, values)


class HashOutput(_KeyedOutput):
    """HASH: each record goes to the channel whose subtask owns the key group of its key.

    Args:
        dictionaries: whether a key that is a single column of texts may leave as an Arrow dictionary: texts that
            repeat are then hashed and sent once.
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
        self.sketch = KeySketch() if len(channels) > 1 else None
        one_column = type(key_selector) is ColumnKey and len(key_selector.indexes) == 1
        self._repeated = RepeatedTexts() if dictionaries and one_column else None

    @override
    def route(self, batch: Batch) -> Routed:
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
        """Route a batch by the dictionary of its keys, so that each distinct key is hashed once.

        Each channel gets a dictionary of only its own keys: sort the keys by channel, so that those of a channel are
        one slice, and renumber the codes of the rows to positions within that slice.
        """
        codes, keys = encoded.indices.to_numpy(), encoded.dictionary
        target_of_key = self._assigner.assign_columns([keys])
        if self.sketch is not None and self.sketch.passed(len(codes)):
            positions = self.sketch.positions(len(codes))
            self.sketch.add(encoded.take(pa.array(positions)).to_pylist(), target_of_key[codes[positions]].tolist())
        by_channel = np.argsort(target_of_key, kind="stable")
        counts = np.bincount(target_of_key, minlength=len(self.channels))
        starts = np.cumsum(counts) - counts
        code_in_channel = np.empty(len(keys), np.int32)
        code_in_channel[by_channel] = np.arange(len(keys)) - np.repeat(starts, counts)
        keys = keys.take(pa.array(by_channel))
        # The rows travel to their channels with new codes in place of texts; the dictionaries are put in afterwards.
        coded = with_form(columns_of(batch), index, pa.array(code_in_channel.take(codes)))
        routed = columns_to_channels(batch.with_values(coded), target_of_key.take(codes), self.channels)
        bounds = dict(zip(map(id, self.channels), zip(starts.tolist(), counts.tolist(), strict=True), strict=True))
        routed_dictionaries = []
        for channel, part in routed:
            rows = columns_of(part)
            channel_keys = keys.slice(*bounds[id(channel)])
            dictionary = pa.DictionaryArray.from_arrays(rows.column(index), channel_keys, safe=False)
            routed_dictionaries.append((channel, part.with_values(with_form(rows, index, dictionary))))
        return routed_dictionaries

    def targets(self, values: list[Any]) -> list[int]:
        keys = self.keys(values)
        try:
            targets = self._assigner.assign(keys)
        except TaskInterrupt:
            raise
        except BaseException as error:  # also what a key's own __hash__ or __eq__ raises
            refusal = error
        else:
            if self.sketch is not None and self.sketch.passed(len(keys)):
                positions = self.sketch.positions(len(keys))
                self.sketch.add([keys[i] for i in positions], [targets[i] for i in positions])
            return targets
        # Assign the keys one by one, so that the error is raised while ``value`` is the record at fault. Outside of the
        # handler, or the same error would be shown twice: as itself and as its own context.
        for value, key in zip(values, keys, strict=True):  # noqa: B007 - ``value`` is read from the traceback
            self._assigner(key)
        raise refusal

    @property
    @override
    def takes_columns(self) -> bool:
        return isinstance(self._selector, ColumnKey)

    @override
    def targets_of_columns(self, batch: pa.RecordBatch) -> npt.NDArray[Any] | None:
        if not isinstance(self._selector, ColumnKey):
            return None
        arrays, fields = self._selector.arrays(batch), self._selector.fields(batch.schema)
        targets = self.targets_of_keys(arrays, fields, batch.num_rows)
        if self.sketch is not None and arrays and self.sketch.passed(batch.num_rows):
            positions = self.sketch.positions(batch.num_rows)
            chosen = pa.array(positions)
            columns = [values_of(array.take(chosen), field) for array, field in zip(arrays, fields, strict=True)]
            keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            self.sketch.add(keys, targets[positions].tolist())
        return targets

    def targets_of_keys(self, arrays: Sequence[pa.Array], fields: Sequence[pa.Field], count: int) -> npt.NDArray[Any]:
        """Compute the channel of each of ``count`` keys from their columns; without columns all have the key ()."""
        columns = list(zip(arrays, fields, strict=True))
        if not columns:
            return np.full(count, self._assigner.assign([()])[0])
        if all(VALUES not in (field.metadata or {}) for _, field in columns):
            return self._assigner.assign_columns([column for column, _ in columns])
        keys = [values_of(*column) for column in columns]
        return np.array(self._assigner.assign(keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))))


class CustomOutput(_KeyedOutput):
    """CUSTOM: each record goes to the channel that the user's partitioner returns for its key."""

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

    @override
    def targets(self, values: list[Any]) -> list[int]:
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
    """Divide rows among channels by their target, in order; nothing is copied if all go to one channel."""
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
    """Like ``columns_to_channels``, for many channels: sort the rows by channel, then give each one a slice."""
    narrow = targets.astype(np.uint16 if len(channels) <= 1 << 16 else np.uint32)  # numpy sorts 16 bits by radix
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
    """Divide values into ``count`` lists by their targets, in order."""
    if count == 2:  # two passes in C are faster than the loop below
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
    """Create the output for an edge.

    Args:
        spec: specification of the edge.
        name: name of the operator in front of it.
        channels: as ``firesteel.graph.physical.downstream_channels`` lists them.
        max_parallelism: max parallelism of the consumer, which is the number of key groups.
        rng: source of random starts and of SHUFFLE.
        dictionaries: whether the reader of the channels decodes dictionaries, as ``ChainExecutor`` does.
    """
    if spec.columns is not None:
        narrow = replace(spec, columns=None)
        whole = create_output(narrow, name, channels, max_parallelism, rng, dictionaries=dictionaries)
        return NarrowedOutput(whole, *spec.columns)
    kind, count = spec.partitioner, len(channels)
    if kind is PartitionerKind.CUSTOM:
        return CustomOutput(name, channels, spec.key_selector, spec.partition)
    # With one channel the key decides nothing. It is looked at all the same, so that a key that can't be hashed is an
    # error at any parallelism, unless the reader computes keys itself and would notice.
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
