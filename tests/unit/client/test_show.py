"""What `firesteel show` says of state and of Kafka."""

from __future__ import annotations

from typing import Any

from firesteel.client.cli.show import event_lines, kafka_lines, latency_lines, state_text


def checkpoint(number: int, size: int, *, savepoint: bool = False) -> dict[str, Any]:
    return {"id": number, "size": size, "trigger_timestamp": 30_000 * number, "is_savepoint": savepoint}


def test_the_size_of_state_and_what_it_grows_by() -> None:
    states = [{"name": "seen", "size": 3 << 20}, {"name": "gone", "size": None}]
    answer = {
        "checkpoint": checkpoint(4, 4 << 20),
        "base": checkpoint(2, 2 << 20),
        "operators": [{"name": "count", "states": states}, {"name": "other", "states": []}],
    }
    assert state_text(answer) == (
        "state: 4.00 MiB in checkpoint 4, +2.00 MiB a minute; most of it: seen of count, 3.00 MiB"
    )
    shrunk = {**answer, "base": checkpoint(2, 5 << 20)}
    assert ", -1.00 MiB a minute" in state_text(shrunk)
    first = {**answer, "checkpoint": checkpoint(1, 0, savepoint=True), "base": None, "operators": []}
    assert state_text(first) == "state: 0 B in savepoint 1"
    assert state_text({**answer, "checkpoint": None}) == state_text(None) == ""


def test_the_lag_of_kafka_sources() -> None:
    def rows(*lags: int | None) -> list[dict[str, Any]]:
        return [{"topic": "a.b", "partition": number, "lag": lag} for number, lag in enumerate(lags)]

    sources = [
        {"name": "Source: in", "lag": 1234, "partitions": rows(234, 1000, None)},
        {"name": "Source: one", "lag": 0, "partitions": rows(0)},
        {"name": "Source: new", "lag": None, "partitions": rows(None, None)},
    ]
    assert kafka_lines({"sources": sources}) == [
        "Kafka: Source: in: 1,234 records wait in 3 partitions; most in a.b-1, 1,000",
        "Kafka: Source: one: 0 records wait in 1 partition",
        "Kafka: Source: new: the lag is not known yet in 2 partitions",
    ]
    assert kafka_lines(None) == kafka_lines({"sources": []}) == []


def test_events_are_lines_in_the_order_of_time_with_who_asked_for_them() -> None:
    event = {"level": "INFO", "text": "submitted", "by": "", "detail": "", "timestamp": 0, "last": 0, "count": 1}
    restart = {"text": "KeyError: 'a'", "detail": "restart 3 in 1 s", "last": 90_000, "count": 3}
    events = [{**event, "type": "SUBMITTED", "by": "ann from 10.0.0.1"}, {**event, "type": "RESTARTING", **restart}]
    lines = event_lines({"events": events, "dropped": 7})
    assert lines[0] == "7 earlier events are kept no more"
    assert lines[1].endswith("  SUBMITTED: submitted")
    assert lines[2] == "    asked for by ann from 10.0.0.1"
    assert lines[3].endswith("RESTARTING: KeyError: 'a' (3 times in 1 min 30 s)")
    assert lines[4:] == ["    restart 3 in 1 s"]


def test_latencies_are_said_of_the_ends_of_a_job() -> None:
    path = {"source-id": "s", "source": "orders", "p50": 3, "p95": 40, "p99": 1500, "max": 2000}
    paths = [
        {**path, "vertex-id": "s", "vertex": "orders", "is-end": False},
        {**path, "vertex-id": "k", "vertex": "sums", "is-end": False},
        {**path, "vertex-id": "w", "vertex": "writes", "is-end": True},
    ]
    assert latency_lines({"paths": paths}) == ["latency: orders to writes: p50 3 ms, p95 40 ms, p99 1.5 s, max 2 s"]
    assert latency_lines(None) == []
