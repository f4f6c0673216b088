"""Records that a barrier has overtaken: they become part of the checkpoint, and are replayed before anything else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from firesteel.checkpoint.chunks import frame, read_chunks
from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.subtask_state import InFlight
from firesteel.functions.global_commit import GlobalCommitSink
from firesteel.graph.specs import OperatorSpec, OutputSpec, PartitionerKind
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.exchange.channels import ChannelId, OutputChannel
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.operator_base.context import TaskInfo
from firesteel.runtime.records.batch import Batch
from firesteel.state.snapshots import SEVERAL

_now = time.perf_counter
_KEYED: Final = PartitionerKind.HASH


class InFlightSource(NamedTuple):
    """The edge from which in-flight records of a task come.

    Attributes:
        input_index: input of the head operator that the edge feeds.
        partitioner: partitioner of the edge.
    """

    input_index: int
    partitioner: PartitionerKind


class Replayed(NamedTuple):
    """A batch that was in flight.

    Attributes:
        batch: the records.
        source: the edge from which they come.
        route: selects the records of this subtask, at most one batch; None = all are its own.
    """

    batch: Batch
    source: InFlightSource
    route: Callable[[Batch], Iterable[Batch]] | None

    def own_records(self) -> Batch:
        """The records of this subtask; may run the user's key selector."""
        return self.batch if self.route is None else next(iter(self.route(self.batch)), self.batch.slice(0, 0))


def partitioners(head: OperatorSpec, edges: Iterable[tuple[int, int, PartitionerKind]]) -> dict[int, PartitionerKind]:
    """Tell for each edge how its records in flight are redistributed if the parallelism changes.

    Args:
        head: head operator of the chain to which the edges lead.
        edges: for each edge its index, the input of the head, and the partitioner.
    """
    count = len(head.key_selectors)
    any_subtask = PartitionerKind.FORWARD  # if the head has no keys, any subtask may get the records
    return {edge: any_subtask if kind is _KEYED and index >= count else kind for edge, index, kind in edges}


def must_align(head: OperatorSpec) -> bool:
    """Whether barriers on the edges to a chain must not overtake.

    The committables that the writers of a sink with one committer prepare at a barrier travel in front of it, and
    belong to its checkpoint: if the barrier overtook them, only a later checkpoint would commit them (in Flink these
    edges are never unaligned).

    Args:
        head: head operator of the chain to which the edges lead.
    """
    return isinstance(head.function, GlobalCommitSink)


class Out(Protocol):
    """The writer of the log's bytes (``uploads.Upload``)."""

    def data(self, part: int, data: bytes) -> None:
        """Append bytes to a part."""


class InFlightLog:
    """Logs the records that a barrier has overtaken, until it has come over all channels.

    Records are serialised immediately, because user code may change them as soon as they are in the chain.

    Args:
        checkpoint_id: checkpoint of the barrier.
        out: writes the bytes.
        on_end: called once, when the log is complete or a record can't be serialised.

    Attributes:
        open: whether further records may come.
        size: bytes written so far.
        took_ms: time from the beginning to the end of the log.
        error: why the log is not complete.
    """

    def __init__(self, checkpoint_id: int, out: Out, on_end: Callable[[], None]) -> None:
        self.checkpoint_id = checkpoint_id
        self.open, self.size, self.took_ms = True, 0, 0
        self._began = _now()
        self.error: Exception | None = None
        self._out, self._on_end = out, on_end
        self._sources: list[InFlightSource] = []

    def write(self, source: InFlightSource, batch: Batch) -> None:
        """Append a batch to those from the same edge."""
        if not self.open or not len(batch):
            return
        try:
            segments, _ = MessageWriter().dumps(batch)  # a new writer for each message, so that it contains its schema
        except Exception as error:  # raised by code of the user's records
            self.error = error
            self.end()
            return
        data = b"".join(frame(0, SEVERAL, len(batch), b"".join(segments)))
        if source not in self._sources:
            self._sources.append(source)
        self.size += len(data)
        self._out.data(_part(self._sources.index(source)), data)

    def end(self) -> None:
        """End the log, because it is complete or a record can't be serialised. Idempotent."""
        if self.open:
            self.open = False
            self.took_ms = int((_now() - self._began) * 1000)
            self._on_end()

    def give_up(self) -> None:
        """Take no further records, without telling anybody. Idempotent."""
        self.open = False

    def state(self, handles: Callable[[int], StateHandle | None]) -> tuple[InFlight, ...]:
        """The log as state of the checkpoint, when it is written.

        Args:
            handles: returns the handle of a part of the upload.
        """
        parts = ((source, handles(_part(number))) for number, source in enumerate(self._sources))
        return tuple(InFlight(s.input_index, s.partitioner.value, handle) for s, handle in parts if handle is not None)


def _part(number: int) -> int:
    """Number of a source's part in the upload; negative, as parts of operators are numbered from 0 upwards."""
    return -1 - number


class _SubtaskChannel(OutputChannel):
    """Stands for one subtask when records are distributed by key; nothing is ever written to it."""

    def write(self, batch: Batch) -> None: ...

    def send(self, element: Any) -> None: ...

    def flush(self) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class InFlightReader:
    """Reads the records that a task has to replay.

    Args:
        head: head operator of the chain.
        info: description of the task.
        open_state: opens state of the checkpoint.
        check: called before each batch; an exception of it ends the reading.
    """

    def __init__(
        self,
        head: OperatorSpec,
        info: TaskInfo,
        open_state: Callable[[StateHandle], BinaryIO],
        check: Callable[[], None],
    ) -> None:
        self._head, self._info, self._open_state, self._check = head, info, open_state, check

    def read(self, written: Sequence[InFlight]) -> Iterator[Replayed]:
        """Yield the batches in flight of this subtask, in order.

        Raises:
            CheckpointError: state can't be read.
            SerializationError: records can't be unpickled here.
        """
        for part in written:
            source, route = InFlightSource(part.input_index, PartitionerKind(part.partitioner)), self._route(part)
            handle = part.handle
            where = handle.path if isinstance(handle, FileState) else "state in the checkpoint's metadata"
            with self._open_state(handle) as stream:
                for _, _, _, data in read_chunks(stream, where, None):
                    self._check()
                    batch = MessageReader(where).loads(bytearray(data))
                    yield Replayed(batch, source, route)

    def _route(self, part: InFlight) -> Callable[[Batch], Iterable[Batch]] | None:
        """A function that selects the records of this subtask by key; None if all are its own.

        With another parallelism all subtasks read the logs of keyed edges, and each keeps the records of its keys.
        """
        selectors = self._head.key_selectors
        if not part.shared or part.input_index >= len(selectors):
            return None
        info = self._info
        channels = [_SubtaskChannel(ChannelId(0, 0, subtask)) for subtask in range(info.parallelism)]
        edge = OutputSpec(0, 0, _KEYED, selectors[part.input_index])
        output = create_output(edge, self._head.name, channels, info.max_parallelism, random.Random(0))
        own_channel = channels[info.subtask]
        return lambda batch: [routed for channel, routed in output.route(batch) if channel is own_channel]
