"""The contract of cells: what a coordination service has to do for high availability (``firesteel.ha.cell_services``).

A *cell* belongs to one component. It says who leads the component, and holds *records*: short values by name, of a few
kilobytes at most (what is larger is a payload, ``firesteel.ha.payloads``, and its name is in a record). So a cell fits
into a few nodes of ZooKeeper, or into one ConfigMap. ``firesteel.testing.check_cells`` holds an implementation against
what follows.

* ``campaign`` gives an epoch larger than each before, or None while somebody leads. Who leads is told by the service:
  a leader that it does not hear in time leads no more, and knows that by its own monotonic clock before anybody else
  can lead. Clocks of hosts are never compared.
* ``change`` makes several changes of one cell in one step, all or none: under an epoch, and comparing versions. The
  service itself refuses those of an epoch that is over (``FencedError``), or where a record is not as it was expected
  (``ChangedError``); nothing has happened then. An ``OSError`` leaves open whether it has happened. What was asked for
  before it, and not answered, does not happen after a later call has been answered.
* What ``read`` and ``names`` give was there at some moment after whatever this object was answered before. Anybody may
  read, whoever leads.

All methods may block, and be called on several threads at once.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from firesteel.core.errors import ConfigurationError, FencedError, FiresteelError
from firesteel.ha.retrieval import Leader, Listener

_TRIES: Final = 8
"""Of one change whose outcome is not known, or that others have got in the way of."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


class ChangedError(FiresteelError):
    """A record is not as it was expected: read it again."""


class UnsureError(OSError):
    """A change may have happened or not; reading tells which."""


class AwayError(OSError):
    """The coordination service does not answer; it is worth waiting for it, as for one's turn."""


@dataclass(frozen=True)
class Record:
    """A short value.

    Attributes:
        value: a few kilobytes at most.
        version: another one after each change, for as long as the record is there.
    """

    value: bytes
    version: int


@dataclass(frozen=True)
class Put:
    """A record gets a value.

    Attributes:
        name: of the record.
        value: what it gets.
        expected: the version that it has; None: there is none of this name.
    """

    name: str
    value: bytes
    expected: int | None


@dataclass(frozen=True)
class RemoveRecord:
    """A record goes.

    Attributes:
        name: of the record.
        expected: the version that it has.
    """

    name: str
    expected: int


@dataclass(frozen=True)
class Unchanged:
    """A record stays as it is, as a condition of other changes.

    Attributes:
        name: of the record.
        expected: the version that it has.
    """

    name: str
    expected: int


Change = Put | RemoveRecord | Unchanged


class Cells(ABC):
    """See the head of this module.

    Attributes:
        largest_record: bytes of a value from which it had better be a payload.
        campaign_seconds: see ``HighAvailabilityServices``.
    """

    largest_record: int = 16 << 10
    campaign_seconds: float = 0.0

    @abstractmethod
    def campaign(self, component: str) -> int | None:
        """Lead a component, if nobody does: the epoch."""

    @abstractmethod
    def announce(self, component: str, leader: Leader) -> None:
        """The leader of an epoch says where it is.

        Raises:
            FencedError: the epoch is over.
        """

    @abstractmethod
    def check(self, component: str, epoch: int) -> None:
        """Raises:
        FencedError: the epoch is over.
        OSError: that can't be told for now.
        """

    def poll(self, component: str, epoch: int) -> None:
        """Like ``check``, for those that look all the time: the answer may be some seconds old."""
        self.check(component, epoch)

    @abstractmethod
    def release(self, component: str, epoch: int) -> None:
        """The epoch is over, if it was not. Idempotent."""

    @abstractmethod
    def depose(self, component: str) -> None:
        """The epoch of now is over, whoever has it."""

    @abstractmethod
    def leader(self, component: str) -> Leader | None:
        """Who leads, as far as is known; see ``LeaderRetrieval``."""

    @abstractmethod
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        """See ``LeaderRetrieval``."""

    @abstractmethod
    def names(self, component: str) -> list[str]:
        """Of the records of a cell, sorted."""

    @abstractmethod
    def read(self, component: str, name: str) -> Record | None:
        """A record; None: there is none of this name."""

    @abstractmethod
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        """Change records of a cell, in one step; each is named at most once.

        Raises:
            FencedError: the epoch is over.
            ChangedError: a record is not as expected.
            UnsureError: it may have happened.
            OSError: it has not.
        """

    @abstractmethod
    def exists(self, component: str) -> bool:
        """Whether there is anything of a cell."""

    @abstractmethod
    def forget(self, component: str) -> None:
        """Remove a cell, with its records. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all epochs, tell nobody any more. Idempotent."""


def settle(cells: Cells, component: str, epoch: int, plan: Callable[[], Sequence[Change] | None]) -> None:
    """Change a cell as a plan says, which reads what there is and is asked again as long as others get in the way, or
    nobody knows whether the change has happened.

    Args:
        cells: where.
        component: whose cell.
        epoch: of the leader.
        plan: what is to change now; nothing: it is as it should be, and is only looked whether the epoch still is.

    Raises:
        FencedError: the epoch is over.
        OSError: it may have happened or not.
    """
    for last in (*[False] * (_TRIES - 1), True):
        changes = plan()
        if not changes:
            cells.check(component, epoch)
            return
        try:
            cells.change(component, epoch, changes)
            return
        except (ChangedError, UnsureError) as error:
            if last:
                raise error if isinstance(error, OSError) else UnsureError(str(error)) from error


def put(name: str, value: bytes, there: Record | None) -> Put:
    """A record gets a value, in place of what was read."""
    return Put(name, value, None if there is None else there.version)


def checked(name: str, what: str) -> str:
    """A name of a component or a record, or a part of one of a payload.

    Raises:
        ConfigurationError: it can be none.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} is made of letters, digits, '_', '-' and '.', and does not begin with '.', not {name[:80]!r}"
        )
    return name


class MemoryCells(Cells):
    """Cells of one process, for as long as it lives."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._epochs: dict[str, int] = {}
        self._leaders: dict[str, Leader] = {}
        self._records: dict[str, dict[str, Record]] = {}
        self._listeners: list[tuple[str, Listener]] = []
        self._last_version = 0

    @override
    def campaign(self, component: str) -> int | None:
        with self._lock:
            if component in self._leaders:
                return None
            epoch = self._epochs[component] = self._epochs.get(checked(component, "a component"), 0) + 1
            self._leaders[component] = Leader(epoch)
        self._tell(component)
        return epoch

    @override
    def announce(self, component: str, leader: Leader) -> None:
        with self._lock:
            self.check(component, leader.epoch)
            self._leaders[component] = leader
        self._tell(component)

    @override
    def check(self, component: str, epoch: int) -> None:
        leader = self._leaders.get(component)
        if leader is None or leader.epoch != epoch:
            raise FencedError(f"epoch {epoch} of {component} is over")

    @override
    def release(self, component: str, epoch: int) -> None:
        with self._lock:
            leader = self._leaders.get(component)
            if leader is not None and leader.epoch == epoch:
                self.depose(component)

    @override
    def depose(self, component: str) -> None:
        with self._lock:
            led = self._leaders.pop(component, None) is not None
        if led:
            self._tell(component)

    @override
    def leader(self, component: str) -> Leader | None:
        return self._leaders.get(component)

    @override
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        entry = component, listener
        self._listeners.append(entry)
        listener(self._leaders.get(component))

        def stop() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return stop

    def _tell(self, component: str) -> None:
        for watched, listener in list(self._listeners):
            if watched == component:
                listener(self._leaders.get(component))

    @override
    def names(self, component: str) -> list[str]:
        with self._lock:
            return sorted(self._records.get(component, ()))

    @override
    def read(self, component: str, name: str) -> Record | None:
        with self._lock:
            return self._records.get(component, {}).get(name)

    @override
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        with self._lock:
            self.check(component, epoch)
            records = dict(self._records.get(component, {}))
            for change in changes:
                there = records.get(change.name)
                if (None if there is None else there.version) != change.expected:
                    raise ChangedError(f"the record {change.name} of {component} has changed")
                if isinstance(change, Put):
                    self._last_version += 1
                    records[checked(change.name, "a record")] = Record(change.value, self._last_version)
                elif isinstance(change, RemoveRecord):
                    del records[change.name]
            self._records[component] = records

    @override
    def exists(self, component: str) -> bool:
        with self._lock:
            return component in self._leaders or bool(self._records.get(component))

    def forget(self, component: str) -> None:
        """See ``Cells``. Epochs go on."""
        with self._lock:
            self._records.pop(component, None)

    @override
    def close(self) -> None:
        self._listeners.clear()
        self._leaders.clear()
