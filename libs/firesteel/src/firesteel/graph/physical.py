"""Which subtasks of an edge are connected: pure arithmetic that producer and consumer agree on."""

from __future__ import annotations

from firesteel.graph.specs import PartitionerKind


def downstream_channels(kind: PartitionerKind, upstream: int, up_parallelism: int, down_parallelism: int) -> list[int]:
    """Subtasks of the consumer that producer subtask ``upstream`` sends to, ascending.

    FORWARD is one to one; RESCALE is pointwise as in Flink (a producer feeds a contiguous group of consumers, or a
    contiguous group of producers feeds one consumer); all others are all to all.
    """
    if kind is PartitionerKind.FORWARD:
        return [upstream]
    if kind is not PartitionerKind.RESCALE:
        return list(range(down_parallelism))
    return [
        d for d in range(down_parallelism) if upstream in upstream_channels(kind, d, up_parallelism, down_parallelism)
    ]


def upstream_channels(kind: PartitionerKind, downstream: int, up_parallelism: int, down_parallelism: int) -> list[int]:
    """Subtasks of the producer that consumer subtask ``downstream`` hears from, ascending."""
    if kind is PartitionerKind.FORWARD:
        return [downstream]
    if kind is not PartitionerKind.RESCALE:
        return list(range(up_parallelism))
    if up_parallelism >= down_parallelism:
        first = downstream * up_parallelism // down_parallelism
        last = (downstream + 1) * up_parallelism // down_parallelism
        return list(range(first, last))
    return [
        u
        for u in range(up_parallelism)
        if u * down_parallelism // up_parallelism <= downstream < (u + 1) * down_parallelism // up_parallelism
    ]
