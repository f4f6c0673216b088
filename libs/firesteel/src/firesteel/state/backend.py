"""The contract of state backends.

A **state backend** is a plain class, found by the name in ``state.backend.type``: ``hashmap`` is built in, others come
by the entry point group ``firesteel.state_backends``. It makes one ``KeyedStateBackend`` for each operator with keys of
each subtask, which owns all state by key of that operator: values, tables, timers and columns.
``firesteel.testing.state_conformance`` holds a backend against what follows.

**What it is given.** ``KeyedStateParameters``: the own key groups and what tells the key group of a key, the managed
memory of the slot, and a directory of its own on a local disk. The memory is one budget for all operators of the slot,
which are in one process: a backend that keeps caches shares them. The directory is not there yet: a backend that wants
it makes it, and ``close`` removes it. What is in it does not outlive the attempt. A process that forks slots never
makes a keyed backend.

**Keys.** The operator sets ``key`` before it calls user code; everything read and written belongs to it. Keys that
Python holds equal are one key. With ``NO_KEY`` there each access raises ``ProgramError``, whose text says why there is
no key. Setting ``key`` must cost next to nothing: it is done for each record.

**States.** ``get_state`` and its kin give the state of a name: the same one each time, for the life of the backend. A
name that is asked for with another kind, type or time-to-live raises ``ProgramError``. ``store(namespace)`` gives
states of the current key and a namespace (a window); they are apart from those without one, even under the same name,
and are used within the call that got them only. ``clear_namespace`` forgets them for the current key. A namespace
hashes, and can be pickled. ``table`` is a mapping by key that operators of the runtime use as they like: what is in it
is state as any other. Its methods must not be kept from one call of the operator to the next. ``timeline`` keeps
records by key and time for them (``state/timelines.py``): what adding one costs, or looking at those of some time, does
not grow with what else is kept of the key. A restored table of the same name, with a dict of lists by time for each
key, becomes one.

**Values** are fitted to the declared type when they are written; what does not fit raises ``TypeMismatchError`` with
state and field. What is read may be the object itself: who changes it in place without writing it back may or may not
find the change later, but never breaks a snapshot.

**Timers.** ``timers(name)`` gives a queue: the timers of a time domain by timestamp, key and namespace, each of them
once. ``due`` takes them out in the order of their timestamps, and those of one timestamp in the order in which they
were registered, as long as all of them are in memory; what is registered meanwhile, and is due, comes too. A snapshot
begins when nothing of ``due`` is suspended.

**Columns.** ``columns(name, key types)`` gives state in arrays (``state/columnar/store.py``): a slot for each key, and
arrays of values by slot. An operator that keeps rows in a form of its own, such as panes of windows, gives that to
``attach``: the backend writes it and brings it back as it does with what is its own. Both are said before ``restore``,
and once for each name.

**Snapshots.** ``snapshot()`` is called while no user code is suspended, and returns at once, whatever the size. What it
gives is an iterator of slices. Each ``next`` works for 2 ms at most (a single value is never cut, and may take longer)
and gives chunks. Between slices the operator goes on reading and writing. Together the chunks hold the state of the
moment of ``snapshot()``: what is written later is not in them, what is removed later is, and a value that is handed out
while the snapshot runs is serialised first, so that a change in place is not in them either. There is one snapshot at
a time; who begins another one before the end or ``close()`` of the last gets a ``RuntimeError``. A value that can't be
serialised raises ``SerializationError`` with state and key out of ``next``, not out of the access that would hand it
out; the snapshot is over then, and the state is whole. After a snapshot that was given up ``snapshot()`` may first
have to put in order what that one left. Most backends write stores of their own with the engine in
``state/snapshots.py``, which does all of this.

**Files.** A snapshot may consist of chunks, of files, or of both. Files are stored by ``write_files``, which the thread
that writes state calls behind the last slice: it may wait there, flush and link. Until then the backend keeps later
writes apart. A file has a name, by which it is found again. A name is known to one backend and those that are restored
from it: two backends may have files of one name with other contents.

**Building on earlier snapshots.** ``Purpose.base`` names a checkpoint of the same backend that is complete and stays
until the new one is. A backend may then write only what has changed: chunks, and says so with ``KeyedSnapshot.base``;
or files, and names those of the base that it needs with ``SnapshotFiles.keep``. Without a base everything is written
anew.

**Savepoints.** With ``Purpose.canonical`` a snapshot is chunks of one key group each, in the form of ``hashmap``, and
no files: any backend restores it.

**Restoring.** ``restore`` is called once, before any state is asked for other than columns, with what one or several
former subtasks have written: descriptions and handles, nothing of which is read before the backend asks for it. It
takes the key groups of its own, out of chunks of several groups and out of files too: so a job may come back with
another parallelism. It is called by a thread that may wait; when reading raises, as for a task that is cancelled
meanwhile, the error has to come out, and the backend is used no more. Every backend reads chunks of states, tables and
timers, in the form of ``hashmap``: so a job may change its backend. Files of another backend are refused with a
``StateRestoreError``; so are columns that nobody has asked for. When a state is asked for its schema is compared with
that in the snapshot (``state/schema.py``): values are taken as they are, or migrated, or ``StateMigrationError`` names
the field. Time-to-live may come and go between two runs: values without a timestamp count as written at the moment of
the restore. State that nobody asks for is kept, and is in the next snapshot.

**Time-to-live** is as ``StateTtlConfig`` says, by the clock in the parameters. Cleaning up is bounded for each access
and frees the memory. What has expired is not in a snapshot if the configuration says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from firesteel.config import Settings
from firesteel.core.clock import Clock, SystemClock
from firesteel.core.plugins import load
from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.metrics import MetricGroup
from firesteel.functions.state import StateDescriptor
from firesteel.state.columnar.snapshots import GroupsOf
from firesteel.state.columnar.store import ColumnarState, one_group
from firesteel.state.snapshots import (
    NO_CHECKPOINT,
    SLICE_SECONDS,
    AttachedState,
    KeyedSnapshot,
    Purpose,
    WrittenState,
)
from firesteel.state.timelines import Timeline

FETCHED_TOGETHER: Final = 16
"""Keys for which it is worth it to say that they come next (``KeyedStateBackend.fetch_ahead``)."""


@dataclass(frozen=True)
class KeyedStateParameters:
    """What a backend is made with.

    Attributes:
        key_group_of: the key group of a key.
        key_groups: those that the subtask owns.
        key_groups_of_keys: the key groups of many keys; None = there is no faster way than one after the other.
        key_groups_of: the same of keys that are given as columns.
        max_parallelism: how many key groups there are.
        clock: its wall clock is the processing time of time-to-live.
        strict_integers: integers that do not fit their type are an error instead of wrapping.
        operator: its name, for errors.
        memory: bytes of managed memory, of all operators of the slot together; 0 = not said.
        directory: its own; empty = there is none.
    """

    key_group_of: Callable[[Any], int] = lambda key: 0
    key_groups: range = range(1)
    key_groups_of_keys: Callable[[Sequence[Any]], Sequence[int]] | None = None
    key_groups_of: GroupsOf = one_group
    max_parallelism: int = 1
    clock: Clock = field(default_factory=SystemClock)
    strict_integers: bool = False
    operator: str = ""
    memory: int = 0
    directory: str = ""


class Timer(NamedTuple):
    """A timer of a key.

    Attributes:
        timestamp: epoch milliseconds.
        key: it belongs to.
        namespace: None = none, as in process functions; a window for windows.
    """

    timestamp: int
    key: Any
    namespace: Any


class TimerQueue(ABC):
    """The timers of one time domain."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def __iter__(self) -> Iterator[Timer]:
        """All timers, unordered; none is taken out."""

    @abstractmethod
    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; returns whether it is new."""

    @abstractmethod
    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Forget a timer; returns whether it was there."""

    @property
    @abstractmethod
    def earliest(self) -> int | None:
        """The smallest timestamp that has a timer."""

    @abstractmethod
    def due(self, until: int) -> Iterator[Timer]:
        """Take out all timers up to a timestamp, one by one; those that are added meanwhile, too."""


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
    def keys(self, descriptor: StateDescriptor | None = None) -> Iterator[Any]:
        """Each key that has state without a namespace under a name, or under any name for None.

        State may be read and written meanwhile: keys that are new by then may come or not.
        """

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
    def timeline(self, name: str) -> Timeline:
        """Records by key and time, for operators of the runtime: the same ones each time; made when they are not there.

        Raises:
            StateRestoreError: those that were restored have the format of a later version.
        """

    @abstractmethod
    def timers(self, name: str) -> TimerQueue:
        """The timers of a name: the same queue each time; made when it is not there."""

    @abstractmethod
    def columns(self, name: str, key_types: Sequence[pa.DataType]) -> ColumnarState:
        """New state in arrays, before ``restore``; foreign keys are refused by it."""

    @abstractmethod
    def attach(self, state: AttachedState) -> None:
        """State in a form of the operator's own is written and brought back with the rest; before ``restore``."""

    @abstractmethod
    def snapshot(self, slice_seconds: float = SLICE_SECONDS, purpose: Purpose = NO_CHECKPOINT) -> KeyedSnapshot:
        """Begin to write out the state of now."""

    @abstractmethod
    def restore(self, written: Sequence[WrittenState]) -> None:
        """Take over what former subtasks have written, as far as it belongs to the own key groups.

        Raises:
            StateRestoreError: it has files of another backend, or columns that nobody has asked for.
            StateMigrationError: columns, or what was attached, were written as something else.
        """

    def defer_migrations(self) -> None:
        """What becomes of restored state that is asked for from now on may wait for ``take_migrations``.

        Called before the function is opened; whether the types fit is still said when the state is asked for.
        """

    def take_migrations(self) -> Sequence[Callable[[], None]]:
        """What has been waiting since ``defer_migrations``; from now on nothing waits.

        To be done in this order by a thread that may wait, before there is a key; raises what asking for the state
        would have raised. A backend that is closed meanwhile does not mind.
        """
        return ()

    fetches_ahead: ClassVar[bool] = False
    """Whether it is of use to say which keys come next."""

    def fetch_ahead(self, keys: Callable[[], Sequence[Any]]) -> None:  # most have all state at hand
        """Records of these keys come next, in this order; they are asked for only where it is of use to know them."""

    def show_metrics(self, group: MetricGroup) -> None:  # most have none
        """Have metrics of its own in the group of the operator; called once, before the operator is opened."""

    @abstractmethod
    def close(self) -> None:
        """Forget everything, and remove the directory; idempotent. May wait."""


class StateBackend(ABC):
    """A plug-in.

    Attributes:
        name: it is chosen by.
        snapshots_in_files: small pieces of a snapshot go into files of the checkpoint storage as well, never into the
            message to the JobMaster; the job needs a storage that has files.
    """

    name: str
    snapshots_in_files: bool = False

    def configure(self, settings: Settings) -> None:  # noqa: B027 # most have no options
        """Read the options of the job, the cluster's below; before any state is made.

        Raises:
            ConfigurationError: a value is not valid.
        """

    @abstractmethod
    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        """A new, empty backend."""


def load_state_backend(name: str) -> StateBackend:
    """The backend of a name (``state.backend.type``).

    Raises:
        ConfigurationError: there is none; the message lists those that are known.
    """
    backend: StateBackend = load("firesteel.state_backends", name)()
    return backend
