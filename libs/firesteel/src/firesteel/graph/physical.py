"""The channels of an edge: which subtasks it connects, computed alike by producer and consumer. Pure."""

from __future__ import annotations

from firesteel.graph.specs import PartitionerKind

POINTWISE = (PartitionerKind.FORWARD, PartitionerKind.RESCALE)
"""Partitioners that connect some subtasks only; all others connect every producer with every consumer."""


def downstream_channels(kind: PartitionerKind, upstream: int, up_parallelism: int, down_parallelism: int) -> list[int]:
    """Return the subtasks of the consumer that producer subtask ``upstream`` sends to, ascending.

    FORWARD is one to one; RESCALE is pointwise as in Flink (a producer feeds a contiguous group of consumers, or a
    contiguous group of producers feeds one consumer); all others are all to all.
    """
    if kind is PartitionerKind.FORWARD:
        return [upstream]
    if kind is not PartitionerKind.RESCALE:
        return list(range(down_parallelism))
    if up_parallelism >= down_parallelism:  # the inverse of the other direction
        return [((upstream + 1) * down_parallelism - 1) // up_parallelism]
    return list(
        range(upstream * down_parallelism // up_parallelism, (upstream + 1) * down_parallelism // up_parallelism)
    )


def upstream_channels(kind: PartitionerKind, downstream: int, up_parallelism: int, down_parallelism: int) -> list[int]:
    """Return the subtasks of the producer that consumer subtask ``downstream`` receives from, ascending."""
    if kind is PartitionerKind.FORWARD:
        return [downstream]
    if kind is not PartitionerKind.RESCALE:
        return list(range(up_parallelism))
    if up_parallelism >= down_parallelism:
        first = downstream * up_parallelism // down_parallelism
        last = (downstream + 1) * up_parallelism // down_parallelism
        return list(range(first, last))
    return [((downstream + 1) * up_parallelism - 1) // down_parallelism]
