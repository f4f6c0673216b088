"""The engine of all snapshots: stores give what they hold in blocks, and the engine cuts it into slices.

A store is whatever holds state: a table, timers, rows of columns, a buffer. When a snapshot begins it makes an
``Outgoing``, which stands for its state of that moment, and costs next to nothing. From then on the store sees to it
that this state stays readable, in the way that suits what it is made of: changes go beside it, or what is about to
change is copied first. What is handed out and may be changed in place is serialised before. The engine pulls blocks;
how large they are is found by measuring. When all blocks are written, changes that went beside are put back, also in
slices.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

SLICE_SECONDS: Final = 0.002
"""A slice of a snapshot works so long at most."""
SEVERAL: Final = 0xFFFF
"""Key group of a chunk with entries of several ones; a subtask that does not own them all leaves out the others."""
_GATHERING: Final = 0.7
"""Share of a slice after which no further block is begun. The rest is for what is done with the chunks."""
_PUT_BACK: Final = 64
"""Changes that are put back between two looks at the clock."""


class Migration(NamedTuple):
    """What a program says about state that earlier versions of it have written; see ``StateMigration``.

    Attributes:
        version: of now.
        defaults: of fields that were added, by path.
        steps: from a version to the next one.
        fit: what checks that a value is of the type of now; None: any value is.
    """

    version: int
    defaults: Mapping[str, Any]
    steps: Mapping[int, Callable[[Any], Any]]
    fit: Callable[[Any], Any] | None


@dataclass(frozen=True)
class StateInfo:
    """Description of one state in a snapshot: plain data, stored beside the chunks.

    Attributes:
        name: of the state or table.
        kind: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``table`` for tables of operators,
            ``timers``, or ``columns`` (and ``columns-removed``) for state in arrays.
        schema: of the value, the element, the map, or the accumulator (``state/schema.py``); of columns the types of
            keys and columns; empty for tables and timers.
        namespaced: keys in chunks are pairs of key and namespace.
        ttl: values carry the time of their last access.
        version: of the program's state (``StateMigration``); 0 where none is declared.
        migration: of the current state: converts values of earlier versions. Not part of snapshots.
    """

    name: str
    kind: str
    schema: dict[str, Any]
    namespaced: bool = False
    ttl: bool = False
    version: int = 0
    migration: Migration | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        plain = {
            "name": self.name,
            "kind": self.kind,
            "schema": self.schema,
            "namespaced": self.namespaced,
            "ttl": self.ttl,
        }
        return {**plain, "version": self.version} if self.version else plain

    @staticmethod
    def from_json(data: dict[str, Any]) -> StateInfo:
        version = data.get("version", 0)
        return StateInfo(data["name"], data["kind"], data["schema"], data["namespaced"], data["ttl"], version)


@dataclass(frozen=True)
class StateChunk:
    """Some entries of one state.

    Attributes:
        state: index in ``KeyedSnapshot.states``.
        key_group: of all entries; or ``SEVERAL``: sorting entries by group costs more than all the rest of a snapshot,
            and only a restore with another parallelism needs it. Where a restore knows that the reader owns all of
            them, it names one of the reader's groups instead.
        count: number of entries.
        data: serialised; private to the backend, but the same for all backends in the canonical form.
    """

    state: int
    key_group: int
    count: int
    data: bytes


@dataclass(frozen=True)
class Purpose:
    """What a snapshot is for.

    Attributes:
        checkpoint_id: of the checkpoint; 0 = the snapshot belongs to none.
        shares: later checkpoints may use what this one writes: the storage keeps it as long as one of them does.
        base: with ``shares``: a checkpoint that this one may build on. It is complete, and stays until this one is; the
            same backend has written it, or was restored from it.
        delta_ratio: largest share of a complete snapshot's entries that changes since may reach; beyond it everything
            is written.
        canonical: write the form for savepoints that all backends read: chunks of one key group each, no files.
    """

    checkpoint_id: int = 0
    shares: bool = False
    base: int | None = None
    delta_ratio: float = 1.0
    canonical: bool = False


_now = time.thread_time
"""Clock of slices: time in which other threads had the processor must not make blocks smaller."""
NO_CHECKPOINT: Final = Purpose()


class SnapshotFiles(ABC):
    """Receives the files of a snapshot; all methods may block.

    Attributes:
        known: the files of the checkpoint that the snapshot builds on (``Purpose.base``): bytes by name.
    """

    known: Mapping[str, int]

    @abstractmethod
    def keep(self, name: str) -> None:
        """Include one of the known files in the snapshot."""

    @abstractmethod
    def put(self, name: str, path: str) -> None:
        """Store a local file under a name; the local file is no longer needed when this returns.

        Raises:
            CheckpointStorageError: it can't be stored, and the checkpoint fails.
        """


class StateAmount(NamedTuple):
    """How much there is of a state that the chunks of a snapshot do not have as a whole.

    Attributes:
        entries: number of entries.
        size: bytes, by any measure that is the same for all states of the snapshot: only their ratio is used.
        counted: whether the entries were counted; else their number is an estimate.
    """

    entries: int
    size: int
    counted: bool


class KeyedSnapshot(ABC):
    """A snapshot on its way out: an iterator of slices on the task's thread, and perhaps files afterwards on another.

    Attributes:
        states: states in it; known from the start.
        base: the checkpoint of ``Purpose.base`` if the chunks hold only changes since: a restore reads that one's
            chunks first, and before them those that it builds on. None = the chunks are complete.
        shared: later checkpoints may use what it writes; only if ``Purpose.shares``.
        has_files: ``write_files`` has to be called.
        amounts: index in ``states`` -> how much there is of it, for people; of states that are not whole in the chunks.
            To be read when everything is written.
    """

    states: Sequence[StateInfo]
    base: int | None = None
    shared: bool = False
    has_files: ClassVar[bool] = False
    amounts: Mapping[int, StateAmount] = MappingProxyType({})

    def __iter__(self) -> Iterator[list[StateChunk]]:
        return self

    @abstractmethod
    def __next__(self) -> list[StateChunk]:
        """Work for a slice, and return the chunks that are ready, perhaps none."""

    def write_files(self, files: SnapshotFiles) -> None:
        """Store the files of the snapshot. Called once after the last slice; never if it was closed before.

        The calling thread may block, while the operator goes on; the task's thread calls ``close`` meanwhile, or has
        done so. It is called even when the checkpoint was aborted meanwhile: ``put`` raises then. Errors fail the
        checkpoint.
        """
        raise NotImplementedError(f"{type(self).__name__} has no files")

    @abstractmethod
    def close(self) -> None:
        """Abort, or confirm that all slices were taken. May be called twice; returns at once, on the task's thread."""


class WrittenState(ABC):
    """State that a former subtask has written of a backend: descriptions, and handles of chunks and files.

        Nothing is read before a method asks for it; all methods may block.

    Attributes:
        states: descriptions of the states.
        key_groups: those that the former subtask owned.
        files: bytes by name.
    """

    states: Sequence[StateInfo]
    key_groups: range
    files: Mapping[str, int]

    @abstractmethod
    def chunks(self) -> Iterator[StateChunk]:
        """All chunks that may have entries of the own key groups, in the order in which they were written.

        Where the own key groups include all of the former subtask's, chunks of ``SEVERAL`` groups name one of the own
        groups instead. Errors of reading have to come out of ``restore``.
        """

    @abstractmethod
    def fetch(self, name: str, path: str) -> None:
        """Copy a file to a new local path, and verify its length and checksum.

        Raises:
            CheckpointCorruptedError: it is not what was written.
            CheckpointStorageError: it can't be read for now.
        """


class Block(NamedTuple):
    """Some entries of a store, serialised.

    Attributes:
        entries: number of entries.
        data: serialised; empty if there are none.
        state: index in ``Outgoing.states``.
        key_group: of all entries; blocks of one group are never joined.
    """

    entries: int
    data: bytes
    state: int = 0
    key_group: int = SEVERAL


class Outgoing(ABC):
    """The contents of a store at the moment a snapshot began, on their way out.

    Attributes:
        states: states in it.
        fewest: entries of the first block.
        most: entries of the largest block.
        share: largest share of a slice that a block takes, where entries can be divided so finely.
        joined: the concatenated blocks of a state are one chunk.
        error: raised while a value was serialised that was about to be handed out; the snapshot reports it later.
    """

    states: Sequence[StateInfo]
    fewest: ClassVar[int] = 4
    most: ClassVar[int] = 1024
    share: ClassVar[float] = 0.125
    joined: ClassVar[bool] = True
    error: BaseException | None = None

    @abstractmethod
    def next_block(self, entries: int) -> Block | None:
        """Block of about so many entries, or fewer; None at the end.

        Raises:
            SerializationError: a value can't be serialised.
        """

    @abstractmethod
    def end(self) -> None:
        """Stop: all blocks were taken, or the snapshot was aborted. May be called twice; returns at once."""

    def settle(self, changes: int) -> bool:
        """Put back ``changes`` changes made meanwhile; True = none are left. Called after ``end``."""
        return True


class ByKeyGroup(Outgoing):
    """A store whose blocks are divided by key group.

    Args:
        store: its blocks may have entries of several groups.
        divide: divides a block by key group.
    """

    joined: ClassVar[bool] = False

    def __init__(self, store: Outgoing, divide: Callable[[Block], Iterable[Block]]) -> None:
        self.states, self._store, self._divide = store.states, store, divide
        self._parts: Iterator[Block] = iter(())
        self.fewest, self.most, self.share = store.fewest, store.most, store.share  # type: ignore[misc] # the store's

    @property
    def error(self) -> BaseException | None:  # type: ignore[override] # of the store
        return self._store.error

    def next_block(self, entries: int) -> Block | None:
        for part in self._parts:
            return part
        block = self._store.next_block(entries)
        if block is None or not block.entries:
            return block
        self._parts = iter(self._divide(block))
        return Block(0, b"")

    def end(self) -> None:
        self._parts = iter(())
        self._store.end()

    def settle(self, changes: int) -> bool:
        return self._store.settle(changes)


class AttachedState(ABC):
    """Keyed state in a form of its owner's, which the backend writes and restores.

    Attributes:
        info: describes it in snapshots; its name is unique among states of its kind.
    """

    info: StateInfo

    @abstractmethod
    def outgoing(self) -> Outgoing:
        """Begin to write the current state."""

    @abstractmethod
    def divide(self, block: Block) -> Iterable[Block]:
        """Divide a block of ``outgoing`` by key group."""

    @abstractmethod
    def expect(self, info: StateInfo) -> None:
        """Check the description of restored chunks before they come.

        StateMigrationError: they can't become the current state.
        StateMigrationError: they would not become what this is.
        """

    @abstractmethod
    def take_back(self, info: StateInfo, chunk: StateChunk) -> None:
        """Restore the entries of a chunk; of ``SEVERAL`` groups only those of the own groups."""

    @abstractmethod
    def taken_back(self) -> None:
        """Note that all chunks of one former subtask were restored."""

    @abstractmethod
    def close(self) -> None:
        """Forget everything. May be called twice."""


class SlicedSnapshot(KeyedSnapshot):
    """Takes blocks out of one store after the other.

    Args:
        stores: written in this order; their states are numbered through.
        slice_seconds: seconds that a slice may work.
        on_end: called once, when the snapshot has ended or was aborted.
        now: clock of the work, in seconds; by default the CPU time of the thread.

    Attributes:
        closed: the snapshot has ended or was aborted.
    """

    def __init__(
        self,
        stores: Sequence[Outgoing],
        slice_seconds: float = SLICE_SECONDS,
        on_end: Callable[[], None] = lambda: None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.states = [info for store in stores for info in store.states]
        self._stores, self._slice_seconds, self._on_end, self._now = stores, slice_seconds, on_end, now or _now
        self._position = self._first_state = self._settled = 0
        self._entries = stores[0].fewest if stores else 0
        self.closed = False

    # The idea: a store gives blocks of as many entries as it is asked for, and this number follows the time that blocks
    # take. So a slice keeps its 2 ms, whatever values are like, and small values still go out a thousand at a time.

    def __next__(self) -> list[StateChunk]:
        if self.closed:
            raise StopIteration
        try:
            # A value that could not be serialised before it was handed out fails the snapshot, not the function.
            for store in self._stores:
                if store.error is not None:
                    raise store.error
            chunks = self._slice(self._now())
        except StopIteration as error:  # of a value's own code as it is written: no end of the snapshot
            self.close()
            raise RuntimeError("a value in state raised StopIteration when it was written") from error
        except BaseException:
            self.close()
            raise
        if chunks is None:
            self.close()
            raise StopIteration
        return chunks

    def _slice(self, now: float) -> list[StateChunk] | None:
        """The next chunks; None at the end."""
        deadline = now + self._slice_seconds * _GATHERING
        chunks: list[StateChunk] = []
        while self._position < len(self._stores):
            store = self._stores[self._position]
            ended, now = self._gather(store, now, deadline, chunks)
            if ended:
                store.end()
                self._position += 1
                self._first_state += len(store.states)
                if self._position < len(self._stores):
                    self._entries = self._stores[self._position].fewest
            if now >= deadline:
                return chunks
        if chunks:
            return chunks
        # All is written. What changed meanwhile stands beside the stores, and goes back into them, also in slices.
        for store in self._stores[self._settled :]:
            while not store.settle(_PUT_BACK):
                if self._now() >= deadline:
                    return chunks
            self._settled += 1
        return None

    def _gather(self, store: Outgoing, now: float, deadline: float, chunks: list[StateChunk]) -> tuple[bool, float]:
        """Add blocks of a store to the chunks until the deadline; return whether the store is at its end, and the
        time.
        """
        joined: list[bytes] = []
        count, ended = 0, False
        long = store.share * self._slice_seconds
        while True:
            block = store.next_block(self._entries)
            if block is None:
                ended = True
                break
            # Small blocks of one state become one chunk: a chunk costs a description of its own.
            if store.joined and block.key_group == SEVERAL:
                count += block.entries
                joined.append(block.data)
            elif block.entries:
                state = self._first_state + block.state
                chunks.append(StateChunk(state, block.key_group, block.entries, block.data))
            before, now = now, self._now()
            if now - before > long:
                # A block costs something however few entries it has: only where values are so large that one of the
                # fewest takes a whole slice do still fewer help.
                least = store.fewest if now - before < self._slice_seconds else 1
                self._entries = max(min(self._entries, block.entries or self._entries) // 2, least)
            elif now - before < long / 4:
                self._entries = min(self._entries * 2, store.most)
            if now >= deadline:
                break
        if count:
            chunks.append(StateChunk(self._first_state, SEVERAL, count, b"".join(joined)))
        return ended, now

    def close(self) -> None:
        """Abort, or confirm the end. May be called twice."""
        if not self.closed:
            self.closed = True
            for store in self._stores:
                store.end()
            self._stores = ()  # who keeps the snapshot does not keep state that is forgotten meanwhile
            self._on_end()
