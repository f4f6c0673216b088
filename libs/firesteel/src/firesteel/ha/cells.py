"""The contract of cells: what a coordination service has to do for high availability (``firesteel.ha.cell_services``).

A *cell* belongs to one component. It says who leads the component, and has *records*: short values by name, of a few
kilobytes at most (larger values are payloads, ``firesteel.ha.payloads``, whose names are in records). So a cell fits
into a few nodes of ZooKeeper, or into one ConfigMap. ``firesteel.testing.check_cells`` checks an implementation against
this contract.

* ``campaign`` returns an epoch larger than all before, or None while somebody leads. The service decides who leads: a
  leader that it does not hear from in time leads no more, and knows that by its own monotonic clock before anybody else
  can lead. Clocks of hosts are never compared.
* ``change`` makes several changes of one cell in one step, all or none: under an epoch, and comparing versions. The
  service itself refuses changes of an epoch that is over (``FencedError``), or of a record that is not as expected
  (``ChangedError``); nothing has happened then. After an ``OSError`` the change may have happened or not. A change
  that was not answered does not happen after a later call has been answered.
* ``read`` and ``names`` return a state of some moment after the last answer to this object. Anybody may read, whoever
  leads.

All methods may block, and be called on several threads at once.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from firesteel.core.errors import ConfigurationError, FiresteelError
from firesteel.ha.retrieval import Leader, Listener

_TRIES: Final = 8
"""Attempts at a change whose outcome is unknown, or that is disturbed by other changes."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


class ChangedError(FiresteelError):
    """A record is not as expected: read it again."""


class UnsureError(OSError):
    """A change may have happened or not; reading tells which."""


class AwayError(OSError):
    """The coordination service does not answer; waiting for it is worthwhile, as for one's turn to lead."""


@dataclass(frozen=True)
class Record:
    """A short value.

    Attributes:
        value: a few kilobytes at most.
        version: changes with every change, for as long as the record exists.
    """

    value: bytes
    version: int


@dataclass(frozen=True)
class Put:
    """Sets the value of a record.

    Attributes:
        name: of the record.
        value: the new one.
        expected: the version that it has; None = it does not exist.
    """

    name: str
    value: bytes
    expected: int | None


@dataclass(frozen=True)
class RemoveRecord:
    """Removes a record.

    Attributes:
        name: of the record.
        expected: the version that it has.
    """

    name: str
    expected: int


@dataclass(frozen=True)
class Unchanged:
    """Demands that a record has not changed, as a condition of other changes.

    Attributes:
        name: of the record.
        expected: the version that it has.
    """

    name: str
    expected: int


Change = Put | RemoveRecord | Unchanged


class Cells(ABC):
    """The cells of a cluster, as described at the head of this module.

    Attributes:
        largest_record: bytes of the largest value that should not become a payload.
        campaign_seconds: see ``HighAvailabilityServices``.
    """

    largest_record: int = 16 << 10
    campaign_seconds: float = 0.0

    @abstractmethod
    def campaign(self, component: str) -> int | None:
        """Try to lead a component; returns the epoch, or None while somebody leads."""

    @abstractmethod
    def announce(self, component: str, leader: Leader) -> None:
        """Publish the address of an epoch's leader.

        Raises:
            FencedError: the epoch is over.
        """

    @abstractmethod
    def check(self, component: str, epoch: int) -> None:
        """Raise an error unless the epoch still leads.

        Raises:
            FencedError: the epoch is over.
            OSError: it is not known for now.
        """

    def poll(self, component: str, epoch: int) -> None:
        """Like ``check``, for frequent calls: the answer may be some seconds old."""
        self.check(component, epoch)

    @abstractmethod
    def release(self, component: str, epoch: int) -> None:
        """End the epoch, if it has not ended. May be called twice."""

    @abstractmethod
    def depose(self, component: str) -> None:
        """End the current epoch, whoever leads."""

    @abstractmethod
    def leader(self, component: str) -> Leader | None:
        """Current leader, as far as is known; see ``LeaderRetrieval``."""

    @abstractmethod
    def watch(self, component: str, listener: Listener) -> Callable[[], None]:
        """Call the listener at each change of leaders; see ``LeaderRetrieval``."""

    @abstractmethod
    def names(self, component: str) -> list[str]:
        """Names of a cell's records, sorted."""

    @abstractmethod
    def read(self, component: str, name: str) -> Record | None:
        """Record of a name; None = there is none."""

    @abstractmethod
    def change(self, component: str, epoch: int, changes: Sequence[Change]) -> None:
        """Change records of a cell in one step; each is named at most once.

        Raises:
            FencedError: the epoch is over.
            ChangedError: a record is not as expected.
            UnsureError: the change may have happened.
            OSError: the change has not happened.
        """

    @abstractmethod
    def exists(self, component: str) -> bool:
        """Whether there is anything of a cell."""

    @abstractmethod
    def forget(self, component: str) -> None:
        """Remove a cell with its records. May be called twice."""

    @abstractmethod
    def close(self) -> None:
        """Release all epochs, and stop calling listeners. May be called twice."""


def settle(cells: Cells, component: str, epoch: int, plan: Callable[[], Sequence[Change] | None]) -> None:
    """Change a cell by a plan, until the change is known to have happened.

    The plan reads the current records; it is called again when others changed them meanwhile, or when nobody knows
    whether the last change has happened.

    Args:
        cells: with the cell.
        component: whose cell it is.
        epoch: of the leader.
        plan: returns the changes to make; empty = nothing has to be changed, and only the epoch is checked.

    Raises:
        FencedError: the epoch is over.
        OSError: the change may have happened or not.
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


def put(name: str, value: bytes, current: Record | None) -> Put:
    """Change that sets a record's value in place of the current one."""
    return Put(name, value, None if current is None else current.version)


def checked(name: str, subject: str) -> str:
    """The name, if it can be that of a component or a record, or a part of a payload's.

    Raises:
        ConfigurationError: it can't be one.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{subject} is made of letters, digits, '_', '-' and '.', and does not begin with '.', not {name[:80]!r}"
        )
    return name
