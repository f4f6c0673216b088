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
from typing import Any, ClassVar, Final, NamedTuple

SLICE_SECONDS: Final = 0.002
"""A slice of a snapshot works so long at most."""
SEVERAL: Final = 0xFFFF
"""In place of a key group: a chunk with entries of several ones. Who does not own them all leaves out the others."""
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
    """What a snapshot says about one state; plain data, kept beside the chunks.

    Attributes:
        name: of the state or table.
        kind: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, ``table`` for tables of operators,
            ``timers``, or ``columns`` (and ``columns-removed``) for state in arrays.
        schema: of the value, the element, the map, or the accumulator (``state/schema.py``); of columns what the store
            says; empty for tables and timers.
        namespaced: keys in chunks are pairs of key and namespace.
        ttl: values carry the time of their last access.
        version: of the program's state (``StateMigration``); 0 where nobody said one.
        migration: of the state of now: what becomes of earlier versions. No part of snapshots.
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
        key_group: of all entries; or ``SEVERAL``: to bring entries in the order of their groups costs more than all
            the rest of a snapshot, and only a restore with another parallelism needs it. Whoever knows, in a restore,
            that the reader owns all of them, names one of its groups instead.
        count: number of entries.
        data: serialised; only the backend's own business, but the same for all that share a canonical form.
    """

    state: int
    key_group: int
    count: int
    data: bytes


@dataclass(frozen=True)
class Purpose:
    """What a snapshot is for.

    Attributes:
        checkpoint_id: of the checkpoint; 0 = of none.
        shares: later checkpoints may use what this one writes: the storage keeps it as long as one of them does.
        base: with ``shares``: a checkpoint that this one may build on. It is complete, and stays until this one is; the
            same backend has written for it, or was restored from it.
        delta_ratio: changes since a snapshot that is whole may be so much of its entries; else it is written anew.
        canonical: it is for a savepoint in the form that all backends have: chunks, each of one key group, no files.
    """

    checkpoint_id: int = 0
    shares: bool = False
    base: int | None = None
    delta_ratio: float = 1.0
    canonical: bool = False


_now = time.thread_time
"""Time in which others had the processor must not make blocks smaller."""
NO_CHECKPOINT: Final = Purpose()


class SnapshotFiles(ABC):
    """Where a snapshot puts its files; all methods may block.

    Attributes:
        known: the files of the checkpoint that the snapshot builds on (``Purpose.base``): bytes by name.
    """

    known: Mapping[str, int]

    @abstractmethod
    def keep(self, name: str) -> None:
        """The snapshot has this one of the known files, too."""

    @abstractmethod
    def put(self, name: str, path: str) -> None:
        """Store a local file under a name; it is not needed any more when this returns.

        Raises:
            CheckpointStorageError: it can't be stored; the checkpoint fails.
        """


class KeyedSnapshot(ABC):
    """A snapshot on its way out: an iterator of slices on the task's thread, and then perhaps files on another one.

    Attributes:
        states: what is in it; known from the start.
        base: the checkpoint of ``Purpose.base`` if the chunks are what has changed since: a restore gets the chunks of
            that one first, with what that one builds on in front. None = they are all there is.
        shared: later checkpoints may use what it writes; only if ``Purpose.shares``.
        has_files: there is something for ``write_files`` to do.
    """

    states: Sequence[StateInfo]
    base: int | None = None
    shared: bool = False
    has_files: ClassVar[bool] = False

    def __iter__(self) -> Iterator[list[StateChunk]]:
        return self

    @abstractmethod
    def __next__(self) -> list[StateChunk]:
        """Work for a slice; the chunks that are ready, which may be none."""

    def write_files(self, files: SnapshotFiles) -> None:
        """Store what is in files. Called once behind the last slice; never if it was closed before.

        By a thread that may wait, while the operator goes on; the task's thread calls ``close`` meanwhile, or has done
        so. It is called also when nobody wants the checkpoint any more: ``put`` raises then. What it raises fails the
        checkpoint.
        """
        raise NotImplementedError(f"{type(self).__name__} has no files")

    @abstractmethod
    def close(self) -> None:
        """Give up, or say that all slices were taken; idempotent. Returns at once, on the task's thread."""


class WrittenState(ABC):
    """What a former subtask has written of a backend: descriptions, and handles of chunks and files.

    Nothing is read before it is asked for; all methods may block.

    Attributes:
        states: descriptions.
        key_groups: those that the subtask owned.
        files: bytes by name.
    """

    states: Sequence[StateInfo]
    key_groups: range
    files: Mapping[str, int]

    @abstractmethod
    def chunks(self) -> Iterator[StateChunk]:
        """All chunks that may hold something of the own key groups, in the order in which they were written.

        Where the own key groups hold all of the subtask's, chunks say so: one of the own groups stands in the place of
        ``SEVERAL``. What reading raises has to come out of ``restore``.
        """

    @abstractmethod
    def fetch(self, name: str, path: str) -> None:
        """Bring a file to a local path, where none is; its length and its checksum have been compared then.

        Raises:
            CheckpointCorruptedError: it is not what was written.
            CheckpointStorageError: it can't be read for now.
        """


class Block(NamedTuple):
    """Some entries.

    Attributes:
        entries: how many.
        data: serialised; empty if there are none.
        state: which of ``Outgoing.states`` they belong to.
        key_group: of all entries; blocks of one are never joined.
    """

    entries: int
    data: bytes
    state: int = 0
    key_group: int = SEVERAL


class Outgoing(ABC):
    """What a store held at a moment, on its way out.

    Attributes:
        states: what is in it.
        fewest: entries of the first block.
        most: entries of the largest.
        share: of a slice that a block takes at most, where entries can be so divided.
        joined: blocks of a state are one chunk if they are put behind each other.
        error: what was raised where nobody could be told, as a value was serialised that was about to be handed out.
    """

    states: Sequence[StateInfo]
    fewest: ClassVar[int] = 4
    most: ClassVar[int] = 1024
    share: ClassVar[float] = 0.125
    joined: ClassVar[bool] = True
    error: BaseException | None = None

    @abstractmethod
    def next_block(self, entries: int) -> Block | None:
        """About so many entries, as many as there are, or fewer; None at the end.

        Raises:
            SerializationError: a value can't be serialised.
        """

    @abstractmethod
    def end(self) -> None:
        """No block is wanted any more: all were given, or it was given up. Idempotent, and returns at once."""

    def settle(self, changes: int) -> bool:
        """Put back so many changes; whether none are left. Called after ``end``."""
        return True


class ByKeyGroup(Outgoing):
    """A store whose blocks are divided by key group.

    Args:
        store: gives blocks of several.
        divide: the entries of a block, by key group.
    """

    joined: ClassVar[bool] = False

    def __init__(self, store: Outgoing, divide: Callable[[Block], Iterable[Block]]) -> None:
        self.states, self._store, self._divide = store.states, store, divide
        self._parts: Iterator[Block] = iter(())
        self.fewest, self.most, self.share = store.fewest, store.most, store.share  # type: ignore[misc] # as that one

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
    """State by key in a form of its owner's, which the backend writes and brings back.

    Attributes:
        info: what snapshots say about it; its name is not that of other state of its kind.
    """

    info: StateInfo

    @abstractmethod
    def outgoing(self) -> Outgoing:
        """Its state of now, to be written."""

    @abstractmethod
    def divide(self, block: Block) -> Iterable[Block]:
        """A block of ``outgoing`` by key group."""

    @abstractmethod
    def expect(self, info: StateInfo) -> None:
        """Chunks of such a state are about to come.

        Raises:
            StateMigrationError: they would not become what this is.
        """

    @abstractmethod
    def take_back(self, info: StateInfo, chunk: StateChunk) -> None:
        """Take over what a chunk holds; of ``SEVERAL`` groups, what belongs to the own ones."""

    @abstractmethod
    def taken_back(self) -> None:
        """Everything of one former subtask was given."""

    @abstractmethod
    def close(self) -> None:
        """Forget everything; idempotent."""


class SlicedSnapshot(KeyedSnapshot):
    """Pulls blocks out of one store after the other.

    Args:
        stores: what is written; their states are numbered through.
        slice_seconds: how long a slice may work.
        on_end: called once, when it is over or was given up.
        now: seconds of work; of the thread, if not given.

    Attributes:
        closed: it is over, or was given up.
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
        """Blocks of a store until the deadline; whether it is at its end, and the time."""
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
        """Give up, or say that it is over; idempotent."""
        if not self.closed:
            self.closed = True
            for store in self._stores:
                store.end()
            self._stores = ()  # who keeps the snapshot does not keep state that is forgotten meanwhile
            self._on_end()
