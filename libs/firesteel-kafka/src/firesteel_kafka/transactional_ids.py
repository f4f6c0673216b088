"""Which transactional ids a subtask of a Kafka sink uses, keeps its hands off, and aborts. Decisions only.

An id is ``<prefix>-<subtask>-<number>``. To *start* an id aborts the transaction that is open with it, and fences off
whoever opened it. So an id is started only when no checkpoint that a job may go on from holds a transaction of it: when
a checkpoint is complete at whose barrier the transaction was committed already. Until then others are used, and a
subtask has three to five in turn: one is started while the one before is written to, and until it is prepared itself no
checkpoint holds anything of it.

What a restored checkpoint holds is committed again before anything is started, but perhaps by another subtask, which
may have to wait for its broker. So ids of the restored checkpoint, whosever they were, are not used by this attempt.
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
"""How long a transaction may stay open if nobody says it: Flink's. Brokers allow 15 minutes by default."""
BROKERS_DEFAULT_MS: Final = 900_000


@dataclass(frozen=True)
class PoolState:
    """What a subtask's writer gives to a checkpoint.

    Attributes:
        prefix: of its ids.
        subtask: its number.
        prepared: ids of transactions that the checkpoint holds, of its own or out of the checkpoint before.
    """

    prefix: str
    subtask: int
    prepared: tuple[str, ...]

    def data(self) -> bytes:
        """The same as bytes."""
        plain = {"prefix": self.prefix, "subtask": self.subtask, "prepared": self.prepared}
        return json.dumps(plain, separators=(",", ":")).encode()

    @classmethod
    def of(cls, data: bytes, version: int) -> PoolState:
        """Reads it.

        Raises:
            CheckpointVersionError: a later release wrote it.
        """
        if version != 1:
            raise CheckpointVersionError(
                "Kafka sink", f"its state of version {version} was written by a later release: go on with that one"
            )
        plain = json.loads(data)
        return cls(plain["prefix"], plain["subtask"], tuple(plain["prepared"]))


@dataclass
class _Used:
    """An id that is not free.

    Attributes:
        barrier: at which its transaction was prepared; None = it is open.
        committed: its transaction is.
        absent_since: the first barrier at which it was committed already.
    """

    barrier: int | None = None
    committed: bool = False
    absent_since: int | None = None


@dataclass
class IdPool:
    """The ids of one subtask in one attempt.

    Args:
        prefix: of the sink.
        subtask: from 0.

    Attributes:
        held: ids out of the restored checkpoint that this subtask's committer has not committed yet.
    """

    prefix: str
    subtask: int
    held: set[str] = field(default_factory=set)
    _reserved: frozenset[str] = frozenset()
    _used: dict[str, _Used] = field(default_factory=dict)
    _barrier: int = 0

    def restored(self, states: Iterable[PoolState]) -> None:
        """The attempt goes on from a checkpoint.

        Args:
            states: of all subtasks.
        """
        self._reserved = frozenset(name for state in states for name in state.prepared)

    @property
    def reserved(self) -> frozenset[str]:
        """Ids that the restored checkpoint holds."""
        return self._reserved

    def take(self) -> str:
        """An id that may be started."""
        number = 0
        while (name := f"{self.prefix}-{self.subtask}-{number}") in self._used or name in self._reserved:
            number += 1
        self._used[name] = _Used()
        return name

    def dropped(self, name: str) -> None:
        """Nothing was written with it."""
        del self._used[name]

    def reached_barrier(self, name: str | None) -> None:
        """A barrier is here.

        Args:
            name: of the transaction that is prepared at it; None = nothing was written.
        """
        self._barrier += 1
        for used in self._used.values():
            if used.committed and used.absent_since is None:
                used.absent_since = self._barrier
        if name is not None:
            self._used[name].barrier = self._barrier

    def is_committed(self, name: str) -> None:
        """A transaction is committed: so the checkpoint of its barrier is complete, or a later one."""
        self.held.discard(name)
        used = self._used.get(name)
        if used is None or used.barrier is None:  # of the restored checkpoint
            return
        used.committed = True
        complete = used.barrier
        for other in [other for other, one in self._used.items() if (one.absent_since or complete + 1) <= complete]:
            del self._used[other]

    def snapshot(self) -> PoolState:
        """What the checkpoint of the last barrier has to know."""
        own = {name for name, used in self._used.items() if used.barrier is not None and not used.committed}
        return PoolState(self.prefix, self.subtask, tuple(sorted(own | self.held)))


def ids_to_abort(
    opened: Iterable[str], prefixes: Collection[str], subtask: int, parallelism: int, reserved: Collection[str]
) -> list[str]:
    """Which transactions that are open at the brokers a subtask has to abort before it writes.

    Each former subtask's are one of today's business, whatever the parallelism was.

    Args:
        opened: ids with an open transaction, of anybody.
        prefixes: of the sink now, and in the checkpoint.
        subtask: from 0.
        parallelism: number of subtasks now.
        reserved: ids that the restored checkpoint holds: they are to be committed.
    """
    pattern = re.compile(f"(?:{'|'.join(re.escape(prefix) for prefix in prefixes)})-(\\d+)-\\d+")
    found = []
    for name in opened:
        match = pattern.fullmatch(name)
        if match and name not in reserved and int(match[1]) % parallelism == subtask:
            found.append(name)
    return sorted(found)


def transaction_timeout(asked_ms: int | None, brokers_ms: int | None) -> int:
    """For how long brokers are to keep a transaction open, in milliseconds.

    Args:
        asked_ms: ``transaction.timeout.ms``; None = nobody has said it.
        brokers_ms: the brokers' ``transaction.max.timeout.ms``; None = they do not tell it.

    Raises:
        ProgramError: more is asked than brokers allow.
    """
    if asked_ms is None:
        return min(DEFAULT_TIMEOUT_MS, BROKERS_DEFAULT_MS if brokers_ms is None else brokers_ms)
    if asked_ms < 1:
        raise ProgramError(f"Kafka sink: transaction.timeout.ms is at least 1, not {asked_ms}")
    if brokers_ms is not None and asked_ms > brokers_ms:
        raise ProgramError(
            f"Kafka sink: transaction.timeout.ms is {asked_ms:,}, and the brokers allow {brokers_ms:,} "
            "(transaction.max.timeout.ms); lower the first or raise the second"
        )
    return asked_ms
