"""Decides which transactional ids a subtask of a Kafka sink uses, leaves alone, and aborts.

An id is ``<prefix>-<subtask>-<number>``. Starting an id aborts the transaction that is open with it, and fences off its
producer. So an id is started again only when no checkpoint that the job may restore holds a transaction of it: when a
checkpoint is complete at whose barrier that transaction was committed already. Until then the subtask uses other ids,
three to five in turn. One of them is started while records go into the transaction of another; no checkpoint holds it
before its own transaction is prepared.

The transactions of a restored checkpoint are committed again before any id is started, but perhaps by another subtask,
which may have to wait for its broker. So this attempt uses none of their ids, whichever subtask they belong to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from firesteel.core.errors import CheckpointVersionError, ProgramError

__all__ = ["DEFAULT_TIMEOUT_MS", "IdPool", "PoolState", "ids_to_abort", "transaction_timeout"]

DEFAULT_TIMEOUT_MS: Final = 3_600_000
"""Flink's default for how long a transaction may stay open."""
BROKERS_DEFAULT_MS: Final = 900_000
"""Default of the brokers' ``transaction.max.timeout.ms``."""


@dataclass(frozen=True)
class PoolState:
    """State of a subtask's writer in a checkpoint.

    Attributes:
        prefix: beginning of its ids.
        subtask: number of the subtask.
        prepared: ids of transactions that the checkpoint holds: prepared by this attempt and not committed, or restored
            and not committed again.
    """

    prefix: str
    subtask: int
    prepared: tuple[str, ...]

    def data(self) -> bytes:
        """Serialize the state for a checkpoint."""
        plain = {"prefix": self.prefix, "subtask": self.subtask, "prepared": self.prepared}
        return json.dumps(plain, separators=(",", ":")).encode()

    @classmethod
    def of(cls, data: bytes, version: int) -> PoolState:
        """Deserialize the state of a checkpoint.

        Raises:
            CheckpointVersionError: a later release wrote the state.
        """
        if version != 1:
            raise CheckpointVersionError(
                "Kafka sink", f"its state of version {version} was written by a later release: go on with that one"
            )
        plain = json.loads(data)
        return cls(plain["prefix"], plain["subtask"], tuple(plain["prepared"]))


@dataclass
class _Used:
    """An id that is in use.

    Attributes:
        barrier: barrier at which its transaction was prepared; None = the transaction is open.
        committed: its transaction is committed.
        absent_since: first barrier whose checkpoint does not hold the transaction, because it was committed before.
    """

    barrier: int | None = None
    committed: bool = False
    absent_since: int | None = None


@dataclass
class IdPool:
    """The ids of one subtask in one attempt.

    Args:
        prefix: beginning of the ids.
        subtask: number of the subtask, from 0.

    Attributes:
        uncommitted: ids of the restored checkpoint that this subtask's committer has not committed yet.
        reserved: ids that the restored checkpoint holds, of all subtasks.
    """

    prefix: str
    subtask: int
    uncommitted: set[str] = field(default_factory=set)
    reserved: frozenset[str] = frozenset()
    _used: dict[str, _Used] = field(default_factory=dict)
    _barrier: int = 0

    def restored(self, states: Iterable[PoolState]) -> None:
        """Reserve the ids of the checkpoint that the attempt restores.

        Args:
            states: states of all subtasks.
        """
        self.reserved = frozenset(name for state in states for name in state.prepared)

    def take(self) -> str:
        """Take an id that may be started."""
        number = 0
        while (name := f"{self.prefix}-{self.subtask}-{number}") in self._used or name in self.reserved:
            number += 1
        self._used[name] = _Used()
        return name

    def reached_barrier(self, name: str | None) -> None:
        """Note a barrier, at which the open transaction, if there is one, is prepared.

        Args:
            name: id of the transaction that is prepared at the barrier; None = no record was written.
        """
        self._barrier += 1
        for used in self._used.values():
            if used.committed and used.absent_since is None:
                used.absent_since = self._barrier
        if name is not None:
            self._used[name].barrier = self._barrier

    def is_committed(self, name: str) -> None:
        """Note that a transaction is committed; so the checkpoint of its barrier is complete, or a later one.

        A complete checkpoint frees the ids whose transactions it does not hold.
        """
        self.uncommitted.discard(name)
        used = self._used.get(name)
        if used is None or used.barrier is None:  # an id of the restored checkpoint
            return
        used.committed = True
        complete = used.barrier
        for other_name, other in list(self._used.items()):
            if other.absent_since is not None and other.absent_since <= complete:
                del self._used[other_name]

    def snapshot(self) -> PoolState:
        """State for the checkpoint of the last barrier."""
        prepared = {name for name, used in self._used.items() if used.barrier is not None and not used.committed}
        return PoolState(self.prefix, self.subtask, tuple(sorted(prepared | self.uncommitted)))


def ids_to_abort(
    opened: Iterable[str], prefixes: Collection[str], subtask: int, parallelism: int, reserved: Collection[str]
) -> list[str]:
    """Ids of open transactions that a subtask has to abort before it writes.

    The ids of each former subtask fall to exactly one current subtask, whatever the parallelism was.

    Args:
        opened: ids with an open transaction, also of other programs.
        prefixes: prefixes of the sink now, and in the checkpoint.
        subtask: number of this subtask, from 0.
        parallelism: number of subtasks now.
        reserved: ids that the restored checkpoint holds, whose transactions have to be committed.
    """
    pattern = re.compile(f"(?:{'|'.join(re.escape(prefix) for prefix in prefixes)})-(\\d+)-\\d+")
    names = []
    for name in opened:
        match = pattern.fullmatch(name)
        if match and name not in reserved and int(match[1]) % parallelism == subtask:
            names.append(name)
    return sorted(names)


def transaction_timeout(configured_ms: int | None, brokers_ms: int | None) -> int:
    """How long brokers shall keep a transaction open, in milliseconds.

    Args:
        configured_ms: the property ``transaction.timeout.ms``; None = it is not set.
        brokers_ms: the brokers' ``transaction.max.timeout.ms``; None = they do not tell it.

    Raises:
        ProgramError: the property is longer than brokers allow.
    """
    if configured_ms is None:
        return min(DEFAULT_TIMEOUT_MS, BROKERS_DEFAULT_MS if brokers_ms is None else brokers_ms)
    if configured_ms < 1:
        raise ProgramError(f"Kafka sink: transaction.timeout.ms is at least 1, not {configured_ms}")
    if brokers_ms is not None and configured_ms > brokers_ms:
        raise ProgramError(
            f"Kafka sink: transaction.timeout.ms is {configured_ms:,}, and the brokers allow {brokers_ms:,} "
            "(transaction.max.timeout.ms); lower the first or raise the second"
        )
    return configured_ms
