"""The REST answer about the Kafka sources of a job."""

from __future__ import annotations

from typing import Any

from firesteel.rest.endpoints import json_answer
from firesteel.rest.kafka_views import kafka_sources, source_vertices

A, B = "a" * 32, "b" * 32


def reader(topic: str, partition: int, **values: int) -> dict[str, int]:
    prefix = f"Source:_in.KafkaSourceReader.topic.{topic}.partition.{partition}"
    return {f"{prefix}.{name.replace('_', '-')}": value for name, value in values.items()}


def archive(subtasks: list[dict[str, Any]], positions: Any = None) -> Any:
    rows = [{"subtask": number, "task-metrics": metrics} for number, metrics in enumerate(subtasks)]
    return {
        "now": 1000,
        "vertices": [{"id": A, "name": "Source: in -> Map", "parallelism": len(rows), "subtasks": rows}],
        "plan": {"nodes": [{"id": A}, {"id": B, "inputs": [{"id": A}]}]},
        "checkpoints": None if positions is None else {"positions": positions},
    }


def test_partitions_by_topic_with_what_their_readers_say() -> None:
    first = {
        "numRecordsIn": 5,
        "Source:_in.KafkaSourceReader.KafkaConsumer.records-lag-max": 3,
        **reader("my_topic.v2".replace(".", "_"), 10, currentOffset=50, committedOffset=40, records_lag=3),
        **reader("my_topic.v2".replace(".", "_"), 9, currentOffset=7, committedOffset=-1, records_lag=-1),
    }
    second = reader("other", 0, currentOffset=1, committedOffset=1, records_lag=0)
    splits = [[A, 0, "my_topic.v2-10", 45], [A, 0, "my_topic.v2-9", None], [B, 0, "other-0", 99], [A, 0, "a file", 1]]
    view = kafka_sources([(A, archive([first, second], {"checkpoint": 7, "splits": splits}))])
    json_answer(view)
    (source,) = view["sources"]
    assert (view["checkpoint"], source["lag"], source["parallelism"], source["operator"]) == (7, 3, 2, "Source:_in")
    names = ("topic", "partition", "subtask", "position", "lag", "committed", "checkpointed")
    assert [tuple(row[name] for name in names) for row in source["partitions"]] == [  # type: ignore[literal-required]
        ("my_topic.v2", 9, 0, 7, None, None, None),
        ("my_topic.v2", 10, 0, 50, 3, 40, 45),
        ("other", 0, 1, 1, 0, 1, None),
    ]


def test_jobs_without_kafka_and_readers_that_have_not_reported_have_no_sources() -> None:
    assert kafka_sources([(A, archive([{"numRecordsIn": 5}, {}]))])["sources"] == []
    assert kafka_sources([]) == {"now": 0, "checkpoint": None, "sources": []}
    assert source_vertices(archive([])) == [A]


def test_a_lag_that_nobody_knows_is_none() -> None:
    (source,) = kafka_sources([(A, archive([reader("t", 0, currentOffset=0, records_lag=-1)]))])["sources"]
    assert source["lag"] is None
