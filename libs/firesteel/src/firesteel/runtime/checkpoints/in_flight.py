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
    """Where in-flight records of a task come from.

    Attributes:
        input_index: input of the head operator.
        partitioner: of the edge.
    """

    input_index: int
    partitioner: PartitionerKind


class Replayed(NamedTuple):
    """A batch that was in flight.

    Attributes:
        batch: the records.
        source: where they come from.
        route: picks the records of the own subtask, one batch at most; None = all are.
    """

    batch: Batch
    source: InFlightSource
    route: Callable[[Batch], Iterable[Batch]] | None

    def own(self) -> Batch:
        """The records of the own subtask; may run the user's key selector."""
        return self.batch if self.route is None else next(iter(self.route(self.batch)), self.batch.slice(0, 0))


def partitioners(head: OperatorSpec, edges: Iterable[tuple[int, int, PartitionerKind]]) -> dict[int, PartitionerKind]:
    """How the records in flight of each edge have to be dealt out, should the parallelism change.

    Args:
        head: operator of the chain that the edges lead to.
        edges: index, input of the head, partitioner.
    """
    count = len(head.key_selectors)
    any_subtask = PartitionerKind.FORWARD  # who has no keys does not mind where records go
    return {edge: any_subtask if kind is _KEYED and index >= count else kind for edge, index, kind in edges}


def must_align(head: OperatorSpec) -> bool:
    """Whether barriers wait for what is in front of them on the edges to a chain.

    What the writers of a sink with one committer prepare at a barrier travels in front of it, and belongs to its
    checkpoint: were it overtaken, a later checkpoint would commit it (in Flink these edges are never unaligned).

    Args:
        head: operator of the chain that the edges lead to.
    """
    return isinstance(head.function, GlobalCommitSink)


class Out(Protocol):
    """What takes the bytes (``uploads.Upload``)."""

    def data(self, part: int, data: bytes) -> None:
        """Write bytes of a part behind those that it had."""


class InFlightLog:
    """Collects what a barrier has overtaken, until it has come over all channels.

    Records are serialised at once: user code may change them as soon as they are in the chain.

    Args:
        checkpoint_id: of the checkpoint.
        out: takes the bytes.
        on_end: called once, when all is there or something can't be serialised.

    Attributes:
        open: more may come.
        size: bytes so far.
        took_ms: from its begin to its end.
        error: why it is not complete.
    """

    def __init__(self, checkpoint_id: int, out: Out, on_end: Callable[[], None]) -> None:
        self.checkpoint_id = checkpoint_id
        self.open, self.size, self.took_ms = True, 0, 0
        self._began = _now()
        self.error: Exception | None = None
        self._out, self._on_end = out, on_end
        self._sources: list[InFlightSource] = []

    def write(self, source: InFlightSource, batch: Batch) -> None:
        """Add a batch behind those that came from there."""
        if not self.open or not len(batch):
            return
        try:
            segments, _ = MessageWriter().dumps(batch)  # a writer of its own: each message tells its schema
        except Exception as error:  # records are the user's
            self.error = error
            self.end()
            return
        data = b"".join(frame(0, SEVERAL, len(batch), b"".join(segments)))
        if source not in self._sources:
            self._sources.append(source)
        self.size += len(data)
        self._out.data(_part(self._sources.index(source)), data)

    def end(self) -> None:
        """All is there, or something can't be serialised; idempotent."""
        if self.open:
            self.open = False
            self.took_ms = int((_now() - self._began) * 1000)
            self._on_end()

    def give_up(self) -> None:
        """Nobody wants it any more, or it is whole; idempotent."""
        self.open = False

    def state(self, handles: Callable[[int], StateHandle | None]) -> tuple[InFlight, ...]:
        """What was written.

        Args:
            handles: of the parts that were written.
        """
        found = ((source, handles(_part(number))) for number, source in enumerate(self._sources))
        return tuple(InFlight(s.input_index, s.partitioner.value, handle) for s, handle in found if handle is not None)


def _part(number: int) -> int:
    """Parts of operators are numbered upwards from 0."""
    return -1 - number


class _Own(OutputChannel):
    """Stands for one subtask, where records are dealt out by key."""

    def write(self, batch: Batch) -> None: ...

    def send(self, element: Any) -> None: ...

    def flush(self) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class InFlightReader:
    """Reads what a task has to replay.

    Args:
        head: operator of the chain.
        info: of the task.
        open_state: reads state.
        check: called before each batch; what it raises ends the reading.
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
        """The batches of the own subtask, in order.

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
        """What leaves out the keys of other subtasks; None: all are the own ones."""
        selectors = self._head.key_selectors
        if not part.shared or part.input_index >= len(selectors):
            return None
        info = self._info
        channels = [_Own(ChannelId(0, 0, subtask)) for subtask in range(info.parallelism)]
        edge = OutputSpec(0, 0, _KEYED, selectors[part.input_index])
        output = create_output(edge, self._head.name, channels, info.max_parallelism, random.Random(0))
        mine = channels[info.subtask]
        return lambda batch: [found for channel, found in output.route(batch) if channel is mine]
