"""What the answer about Kafka sources is made of; see ``types``."""

from __future__ import annotations

from typing import TypedDict

from firesteel.rest.types import Id


class KafkaPartition(TypedDict):
    """A partition that a source reads; None = not known (yet), or no group commits."""

    topic: str
    partition: int
    subtask: int
    position: int | None
    lag: int | None
    committed: int | None
    checkpointed: int | None


KafkaSourceInfo = TypedDict(
    "KafkaSourceInfo",
    {
        "vertex-id": Id,
        "name": str,
        "operator": str,
        "parallelism": int,
        "lag": int | None,
        "partitions": list[KafkaPartition],
    },
)


class KafkaSources(TypedDict):
    """The Kafka sources of a job; ``checkpoint`` is the one that ``checkpointed`` is of."""

    now: int
    checkpoint: int | None
    sources: list[KafkaSourceInfo]
