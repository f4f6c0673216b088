"""The contract of state backends.

A **state backend** is a plain class, found by the name in ``state.backend.type``: ``hashmap`` is built in, others come
by the entry point group ``firesteel.state_backends``. It makes one ``KeyedStateBackend`` for each operator with keys of
each subtask. ``firesteel.testing.state_conformance`` holds a backend against what follows.

**Keys.** The operator sets ``key`` before it calls user code; everything read and written belongs to it. Keys that
Python holds equal are one key. With ``NO_KEY`` there each access raises ``ProgramError``, whose text says why there is
no key. Setting ``key`` must cost next to nothing: it is done for each record.

**States.** ``get_state`` and its kin give the state of a name: the same one each time, for the life of the backend. A
name that is asked for with another kind, type or time-to-live raises ``ProgramError``. ``store(namespace)`` gives
states of the current key and a namespace (a window); they are apart from those without one, even under the same name,
and are used within the call that got them only. ``clear_namespace`` forgets them for the current key. A namespace
hashes, and can be pickled. ``table`` is a mapping by key that operators of the runtime use as they like: what is in it
is state as any other. Its methods must not be kept from one call of the operator to the next.

**Values** are fitted to the declared type when they are written; what does not fit raises ``TypeMismatchError`` with
state and field. What is read may be the object itself: who changes it in place without writing it back may or may not
find the change later, but never breaks a snapshot.

**Snapshots.** ``snapshot()`` is called while no user code is suspended, and returns at once, whatever the size. What it
gives is an iterator of slices. Each ``next`` works for 2 ms at most (a single value is never cut, and may take longer)
and gives chunks. Between slices the operator goes on reading and writing. Together the chunks hold the state of the
moment of ``snapshot()``: what is written later is not in them, what is removed later is, and a value that is handed out
while the snapshot runs is serialised first, so that a change in place is not in them either. There is one snapshot at
a time; who begins another one before the end or ``close()`` of the last gets a ``RuntimeError``. A value that can't be
serialised raises ``SerializationError`` with state and key out of ``next``, not out of the access that would hand it
out; the snapshot is over then, and the state is whole. After a snapshot that was given up ``snapshot()`` may first
have to put in order what that one left.

**Restoring.** ``restore`` is called once, before any state is asked for, with the descriptions and chunks of one or
several snapshots, and takes the key groups of its own, out of chunks of several groups too: so a job may come back
with another parallelism. When a state is asked for its schema is compared with that in the snapshot
(``state/schema.py``): values are taken as they are, or migrated, or ``StateMigrationError`` names the field.
Time-to-live may come and go between two runs: values without a timestamp count as written at the moment of the
restore. State that nobody asks for is kept, and is in the next snapshot.

**Time-to-live** is as ``StateTtlConfig`` says, by the clock in the parameters. Cleaning up is bounded for each access
and frees the memory. What has expired is not in a snapshot if the configuration says so.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from firesteel.core.clock import Clock, SystemClock
from firesteel.core.errors import ConfigurationError
from firesteel.core.plugins import known_names, load
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import StateDescriptor

GROUP: Final = "firesteel.state_backends"
_STAND_INS: Final = {"rocksdb": "hashmap"}
"""Backends that programs name and this version does not have -> what keeps the same state in another way."""
logger = logging.getLogger(__name__)
SLICE_SECONDS: Final = 0.002
"""A slice of a snapshot works so long at most."""
SEVERAL: Final = 0xFFFF
"""In place of a key group: a chunk with entries of several ones. Who does not own them all leaves out the others."""


@dataclass(frozen=True)
class KeyedStateParameters:
    """What a backend is made with.

    Attributes:
        key_group_of: the key group of a key.
        key_groups: those that the subtask owns.
        clock: its wall clock is the processing time of time-to-live.
        strict_integers: integers that do not fit their type are an error instead of wrapping.
        operator: its name, for errors.
    """

    key_group_of: Callable[[Any], int] = lambda key: 0
    key_groups: range = range(1)
    clock: Clock = field(default_factory=SystemClock)
    strict_integers: bool = False
    operator: str = ""


@dataclass(frozen=True)
class StateInfo:
    """What a snapshot says about one state; plain data, kept beside the chunks.

    Attributes:
        name: of the state or table.
        kind: ``value``, ``list``, ``map``, ``reducing``, ``aggregating``, or ``table`` for tables of operators.
        schema: of the value, the element, the map, or the accumulator (``state/schema.py``); empty for tables.
        namespaced: keys in chunks are pairs of key and namespace.
        ttl: values carry the time of their last access.
    """

    name: str
    kind: str
    schema: dict[str, Any]
    namespaced: bool = False
    ttl: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "kind": self.kind,
            "schema": self.schema,
            "namespaced": self.namespaced,
            "ttl": self.ttl,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> StateInfo:
        """From plain data."""
        return StateInfo(data["name"], data["kind"], data["schema"], data["namespaced"], data["ttl"])


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


class KeyedSnapshot(ABC):
    """A snapshot on its way out: an iterator of slices.

    Attributes:
        states: what is in it; known from the start.
    """

    states: Sequence[StateInfo]

    def __iter__(self) -> Iterator[list[StateChunk]]:
        return self

    @abstractmethod
    def __next__(self) -> list[StateChunk]:
        """Work for a slice; the chunks that are ready, which may be none."""

    @abstractmethod
    def close(self) -> None:
        """Give up, or say that it is over; idempotent. Returns at once."""


class KeyedStateBackend(KeyedStateStore):
    """The keyed state of one operator of one subtask.

    Attributes:
        key: of the record being processed; set by the operator.
    """

    key: Any

    @abstractmethod
    def store(self, namespace: Any = None) -> KeyedStateStore:
        """The states of the current key and a namespace; of the key alone for None."""

    @abstractmethod
    def clear_namespace(self, namespace: Any) -> None:
        """Forget all states of the current key and a namespace."""

    @abstractmethod
    def merge_namespaces(self, descriptor: StateDescriptor, target: Any, sources: Iterable[Any]) -> None:
        """Bring the state of some namespaces of the current key into that of another one, and forget them.

        Raises:
            ProgramError: state of this kind can't be merged (value and map).
        """

    @abstractmethod
    def keys(self, descriptor: StateDescriptor | None = None) -> list[Any]:
        """Each key that has state without a namespace under a name, or under any name for None; a list of its own."""

    @abstractmethod
    def table(self, name: str) -> MutableMapping[Any, Any]:
        """A table by key, for operators of the runtime; made when it is not there."""

    @abstractmethod
    def table_names(self) -> list[str]:
        """The names of all tables that were made, restored ones too."""

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Forget a table with all that is in it; nothing happens if there is none. It must not be used any more."""

    @abstractmethod
    def snapshot(self, slice_seconds: float = SLICE_SECONDS) -> KeyedSnapshot:
        """Begin to write out the state of now."""

    @abstractmethod
    def restore(self, states: Sequence[StateInfo], chunks: Iterable[StateChunk]) -> None:
        """Take over what a snapshot wrote, as far as it belongs to the own key groups. May be called for several.

        Called before anything else, by a thread that may wait: the chunks are read while they are taken. When reading
        raises, as for a task that is cancelled meanwhile, the error has to come out; the backend is used no more then.
        """

    @abstractmethod
    def close(self) -> None:
        """Forget everything; idempotent."""


class StateBackend(ABC):
    """A plug-in.

    Attributes:
        name: it is chosen by.
        snapshots_in_files: small pieces of a snapshot go into files of the checkpoint storage as well, never into the
            message to the JobMaster; the job needs a storage that has files.
    """

    name: str
    snapshots_in_files: bool = False

    @abstractmethod
    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        """A new, empty backend."""


def backend_in_use(name: str) -> str:
    """The name of the backend that keeps the state of a job which asks for this one."""
    return name if name in known_names(GROUP) else _STAND_INS.get(name, name)


def load_state_backend(name: str) -> StateBackend:
    """The backend of a name (``state.backend.type``).

    Raises:
        ConfigurationError: there is none; the message lists those that are known.
    """
    try:
        made: type[StateBackend] = load(GROUP, name)
    except ConfigurationError:
        if name not in _STAND_INS:
            raise
        logger.warning("state backend %s is not in this version: keyed state is kept by %s", name, _STAND_INS[name])
        made = load(GROUP, _STAND_INS[name])
    return made()
