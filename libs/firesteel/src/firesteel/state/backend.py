"""The contract of state backends.

A **state backend** is a plain class, found by the name in ``state.backend.type``: ``hashmap`` is built in, others come
from the entry point group ``firesteel.state_backends``. It creates one ``KeyedStateBackend`` for each operator with
keys in each subtask, which owns all keyed state of that operator: values, tables, timers and columns.
``firesteel.testing.state_conformance`` checks a backend against this contract.

**Parameters.** ``KeyedStateParameters`` has the subtask's key groups and the function that assigns keys to them, the
managed memory of the slot, and a directory of the backend's own on a local disk. The memory is one budget for all
operators of the slot, which are in one process, so backends share their caches. The directory does not exist yet: a
backend that wants it creates it, and ``close`` removes it. Its contents do not outlive the attempt. A process that
forks slots never creates a keyed backend.

**Keys.** The operator sets ``key`` before it calls user code; everything read and written belongs to it. Keys that are
equal in Python are one key. While ``key`` is ``NO_KEY``, each access raises ``ProgramError``, whose text says why there
is no key. Setting ``key`` must cost next to nothing, since it is done for each record.

**States.** ``get_state`` and its kin return the state of a name: the same object each time, for the life of the
backend. A name that is declared again with another kind, type or time-to-live raises ``ProgramError``.
``store(namespace)`` returns states of the current key and a namespace (a window); they are apart from those without
one, even under the same name, and may be used only within the call that got them. ``clear_namespace`` forgets them for
the current key. A namespace can be hashed and pickled. ``table`` is a mapping by key for operators of the runtime: its
entries are state like any other. Its bound methods must not be kept from one call of the operator to the next.
``timeline`` stores records by key and time for such operators (``state/timelines.py``): the cost of adding a record, or
of reading those of some time, does not grow with the other records of the key. A restored table of the same name, with
a dict of lists by time for each key, becomes a timeline.

**Values** are fitted to the declared type when they are written; a value that does not fit raises ``TypeMismatchError``
with state and field. A value that is read may be the stored object itself: a change in place that is not written back
may be visible later or not, but never breaks a snapshot.

**Timers.** ``timers(name)`` returns a queue: the timers of a time domain by timestamp, key and namespace, each of them
once. ``due`` removes them in the order of their timestamps, and those of one timestamp in the order in which they were
registered, as long as all of them are in memory; timers that are registered meanwhile, and are due, come too. A
snapshot never begins while an iteration of ``due`` is suspended.

**Columns.** ``columns(name, key types)`` returns state in arrays (``state/columnar/store.py``): a slot for each key,
and arrays of values by slot. An operator that stores rows in a form of its own, such as panes of windows, passes that
to ``attach``: the backend writes and restores it with the rest. Both are called before ``restore``, once for each name.

**Snapshots.** ``snapshot()`` is called while no user code is suspended, and returns at once, whatever the size. It
returns an iterator of slices. Each ``next`` works for 2 ms at most (a single value is never cut, and may take longer)
and returns chunks. Between slices the operator goes on reading and writing. Together the chunks are the state at the
moment of ``snapshot()``: later writes are not in them, entries removed later are, and a value that is handed out while
the snapshot runs is serialised first, so that changes in place are not in them either. There is one snapshot at a time:
to begin another before the end or ``close()`` of the last raises ``RuntimeError``. A value that can't be serialised
raises ``SerializationError`` with state and key out of ``next``, not out of the access that would hand it out; the
snapshot is over then, and the state is complete. After a snapshot that was aborted, ``snapshot()`` may first have to
tidy up after it. Most backends write their stores with the engine in ``state/snapshots.py``, which does all of this.

**Files.** A snapshot may consist of chunks, of files, or of both. Files are stored by ``write_files``, which the thread
that writes state calls after the last slice: it may block there, flush and link. Until then the backend keeps later
writes apart. The name of a file identifies it for one backend and those that are restored from it: two backends may
have files of one name with different contents.

**Building on earlier snapshots.** ``Purpose.base`` names a checkpoint of the same backend that is complete and stays
until the new one is. A backend may then write only changes: as chunks, and says so with ``KeyedSnapshot.base``; or as
files, and names the files of the base that it needs with ``SnapshotFiles.keep``. Without a base everything is written.

**Savepoints.** With ``Purpose.canonical`` a snapshot consists of chunks of one key group each, in the form of
``hashmap``, and has no files: any backend can restore it.

**Restoring.** ``restore`` is called once, before any state other than columns is requested, with what one or several
former subtasks have written: descriptions and handles, whose contents are read only when the backend asks for them. It
takes its own key groups, out of chunks of several groups and out of files too, so that a job may come back with another
parallelism. The calling thread may block; when reading raises, as for a task that is cancelled meanwhile, the error has
to come out, and the backend is not used any more. Every backend reads chunks of states, tables and timers, in the form
of ``hashmap``, so that a job may change its backend. Files of another backend are refused with a ``StateRestoreError``;
so are columns that no operator has requested, unless it has set ``drops_unknown_columns``. When a state is requested,
its schema is compared with that in the snapshot (``state/schema.py``): values are taken as they are, or migrated, or
``StateMigrationError`` names the field. Time-to-live may be added or removed between two runs: values without a
timestamp count as written at the moment of the restore. State that is never requested stays, and is in the next
snapshot.

**Time-to-live** follows ``StateTtlConfig``, by the clock in the parameters. Each access cleans up a bounded number of
entries and frees their memory. Snapshots leave out expired values if the configuration says so.
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
from firesteel.state.columnar.row_table import RowLife, RowTable
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
"""Keys from which on announcing them (``KeyedStateBackend.fetch_ahead``) is worth it."""


@dataclass(frozen=True)
class KeyedStateParameters:
    """Parameters of a keyed backend.

    Attributes:
        key_group_of: returns the key group of a key.
        key_groups: those that the subtask owns.
        key_groups_of_keys: returns the key groups of many keys; None = calling ``key_group_of`` for each is as fast.
        key_groups_of: returns the key groups of keys that come as columns.
        max_parallelism: number of key groups.
        clock: its wall clock is the processing time of time-to-live.
        strict_integers: integers that do not fit their type are an error instead of wrapping.
        operator: its name, for errors.
        memory: bytes of managed memory for all operators of the slot together; 0 = not configured.
        directory: of this backend alone; empty = there is none.
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
        """How many timers are registered."""

    @abstractmethod
    def __iter__(self) -> Iterator[Timer]:
        """All timers, unordered; none is removed."""

    @abstractmethod
    def add(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Register a timer; False = it was registered before."""

    @abstractmethod
    def discard(self, timestamp: int, key: Any, namespace: Any) -> bool:
        """Forget a timer; False = there was none."""

    @property
    @abstractmethod
    def earliest(self) -> int | None:
        """Smallest timestamp that has a timer; None = there is no timer."""

    @abstractmethod
    def due(self, until: int) -> Iterator[Timer]:
        """Remove and yield all timers up to a timestamp, including those added meanwhile."""


class KeyedStateBackend(KeyedStateStore):
    """The keyed state of one operator in one subtask.

    Attributes:
        key: of the record being processed; set by the operator.
        drops_unknown_columns: restored columns, and state that operators attach, are left out if nobody has requested
            them; else they are refused. Set before ``restore``.
    """

    key: Any
    drops_unknown_columns: bool

    @abstractmethod
    def store(self, namespace: Any = None) -> KeyedStateStore:
        """The states of the current key and a namespace; of the key alone for None."""

    @abstractmethod
    def clear_namespace(self, namespace: Any) -> None:
        """Forget all states of the current key and a namespace."""

    @abstractmethod
    def merge_namespaces(self, descriptor: StateDescriptor, target: Any, sources: Iterable[Any]) -> None:
        """Merge the state of some namespaces of the current key into that of another one, and forget them.

        Raises:
            ProgramError: state of this kind can't be merged (value and map).
        """

    @abstractmethod
    def keys(self, descriptor: StateDescriptor | None = None) -> Iterator[Any]:
        """Each key that has state without a namespace under the descriptor's name; under any name for None.

        State may be read and written meanwhile: keys that are added by then may come or not.
        """

    @abstractmethod
    def table(self, name: str) -> MutableMapping[Any, Any]:
        """Table by key, for operators of the runtime; created if there is none."""

    @abstractmethod
    def table_names(self) -> list[str]:
        """Names of all tables, including restored ones."""

    @abstractmethod
    def drop_table(self, name: str) -> None:
        """Forget a table with all its entries, if it exists. It must not be used any more."""

    @abstractmethod
    def timeline(self, name: str) -> Timeline:
        """Records by key and time, for operators of the runtime: the same object each time; created if there is none.

        Raises:
            StateRestoreError: those that were restored have the format of a later version.
        """

    @abstractmethod
    def timers(self, name: str) -> TimerQueue:
        """Timers of a name: the same queue each time; created if there is none."""

    @abstractmethod
    def columns(self, name: str, key_types: Sequence[pa.DataType], grouped: int | None = None) -> ColumnarState:
        """Create state in columns, before ``restore``; it refuses keys of other subtasks.

        Args:
            name: of the state.
            key_types: of the key's columns.
            grouped: how many of these, the first ones, decide on the key group; None = all.
        """

    def rows(
        self,
        name: str,
        key_types: Sequence[pa.DataType],
        schema: pa.Schema,
        numbers: Sequence[str] = (),
        groups_of: GroupsOf = one_group,
        key_groups: range = range(1),
        life: RowLife | None = None,
    ) -> RowTable:
        """Create state of many rows for each key, before ``restore``; parameters as of ``RowTable``.

        Between batches rows may leave memory: ``RowTable.begin_batch``.
        """
        table = RowTable(name, key_types, schema, numbers, groups_of, key_groups, life)
        self.attach(table)
        return table

    @abstractmethod
    def attach(self, state: AttachedState) -> None:
        """Write and restore state in a form of the operator's own with the rest; before ``restore``."""

    @abstractmethod
    def snapshot(self, slice_seconds: float = SLICE_SECONDS, purpose: Purpose = NO_CHECKPOINT) -> KeyedSnapshot:
        """Begin to write the current state."""

    @abstractmethod
    def restore(self, written: Sequence[WrittenState]) -> None:
        """Take over what former subtasks have written, as far as it belongs to the own key groups.

        Raises:
            StateRestoreError: there are files of another backend, or columns that no operator has requested.
            StateMigrationError: columns, or attached state, were written with another schema.
        """

    def defer_migrations(self) -> None:
        """Let migrations of restored state that is requested from now on wait for ``take_migrations``.

        Called before the function is opened; types that do not fit are refused when the state is requested, as ever.
        """

    def take_migrations(self) -> Sequence[Callable[[], None]]:
        """Migrations that have been waiting since ``defer_migrations``; later ones do not wait.

        A thread that may block runs them in this order, before there is a key; they raise what requesting the state
        would have raised. Closing the backend meanwhile makes them return.
        """
        return ()

    fetches_ahead: ClassVar[bool] = False
    """Whether ``fetch_ahead`` is of use."""

    def fetch_ahead(self, keys: Callable[[], Sequence[Any]]) -> None:  # most have all state at hand
        """Announce the keys of the next records, in their order; ``keys`` is called only where it is of use to know
        them.
        """

    def show_metrics(self, group: MetricGroup) -> None:  # most have none
        """Show the backend's own metrics in the group of the operator. Called once, before the operator is opened."""

    @abstractmethod
    def close(self) -> None:
        """Forget everything, and remove the directory. May be called twice, and may block."""


class StateBackend(ABC):
    """A plug-in that creates keyed state.

    Attributes:
        name: under which it is configured.
        snapshots_in_files: small pieces of a snapshot go into files of the checkpoint storage as well, never into the
            message to the JobMaster; the job needs a storage that has files.
    """

    name: str
    snapshots_in_files: bool = False

    def configure(self, settings: Settings) -> None:  # noqa: B027 # most have no options
        """Read the options of the job, over those of the cluster; before any state is created.

        Raises:
            ConfigurationError: a value is not valid.
        """

    @abstractmethod
    def create_keyed_state(self, parameters: KeyedStateParameters) -> KeyedStateBackend:
        """Create an empty keyed backend."""


def load_state_backend(name: str) -> StateBackend:
    """Create the backend of a name (``state.backend.type``).

    Raises:
            ConfigurationError: there is none; the message lists the known names.
    """
    backend: StateBackend = load("firesteel.state_backends", name)()
    return backend
