"""The recipes that read a real Kafka give what plain Python finds in the same records, also when a slot dies."""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.recipes import backfill, join_two_topics, kafka_to_postgres

from firesteel.common import JobClient
from firesteel.core.process import kill, wait_gone
from tests.integration.embedded.programs import ended, family, new_environment, rest_of
from tests.integration.recovery.places import Embedded, embedded
from tests.servers.kafka.server import KafkaCluster
from tests.servers.postgresql.server import PostgresServer
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.may_skip(reason="Kafka comes by Maven; a machine where no PostgreSQL is, and none can be installed"),
]
DATA = Path(__file__).resolve().parents[3] / "examples" / "data"
START = datetime.datetime(2026, 11, 27, 10)
BAD = [b"no order", b"", b'{"id": "x", "product": null, "cents": 1, "time": "2026-11-27T10:00:00Z"}', b"[1]", b'"\xff"']
Order = dict[str, Any]


@pytest.fixture(scope="module")
def here() -> Iterator[Embedded]:
    with embedded() as place:
        yield place


def orders(first: int, last: int) -> list[Order]:
    """An order each second, one of seventy of them ten seconds late."""
    numbers = [*range(first, last)]
    for number in range(first, last - 20, 70):
        numbers.remove(number)
        numbers.insert(numbers.index(number + 10), number)
    products = ["tea", "müsli", "ale", "o'bread"]
    return [
        {
            "id": f"o{number}",
            "product": products[number * 7919 % 4],
            "cents": number % 500,
            "time": f"{(START + datetime.timedelta(seconds=number)).isoformat()}Z",
        }
        for number in numbers
    ]


def send(kafka: KafkaCluster, topic: str, values: list[Any], partition: int | None = None) -> None:
    data = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    kafka.produce(topic, [(None, value) for value in data], partition)


def die(job: JobClient) -> None:
    """Kill a slot that works, between two checkpoints."""

    def some() -> bool:
        return bool(rest_of(job, "/checkpoints")["counts"]["completed"] >= 2)

    wait_until(some, "two checkpoints are complete")
    victim = family(os.getpid())["slot"][0]
    kill(victim)
    assert not wait_gone([victim], 20)


def turnover(values: list[Order], length: int) -> dict[tuple[str, str], tuple[int, int]]:
    """Beginning of a window and product -> number of orders and sum; windows are told by that much of the time."""
    actual: dict[tuple[str, str], tuple[int, int]] = {}
    for order in values:
        key = order["time"][:length], order["product"]
        count, cents = actual.get(key, (0, 0))
        actual[key] = count + 1, cents + order["cents"]
    return actual


def test_kafka_to_postgres(here: Embedded, kafka: KafkaCluster, postgres: PostgresServer) -> None:
    topic = kafka.create_topic(partitions=2)
    for statement in (DATA / "turnover.sql").read_text().split(";"):
        if statement.strip():
            postgres.run(statement)
    sent = orders(0, 3000)
    closing = {"id": "last", "product": "closing", "cents": 1, "time": "2026-11-27T11:30:00Z"}
    env = new_environment(2)
    env.enable_checkpointing(200)
    kafka_to_postgres.build(env, kafka.bootstrap, topic, postgres.options())
    job = env.execute_async("turnover")
    try:
        send(kafka, topic, [*sent[:1000], *BAD])
        wait_until(lambda: postgres.run("SELECT count(*) FROM turnover")[0][0] > 20, "there are rows")
        die(job)
        send(kafka, topic, sent[1000:])
        expected = turnover(sent, 16)
        for partition in (0, 1):
            send(kafka, topic, [closing], partition)

        def rows() -> list[tuple[Any, ...]]:
            return postgres.run("SELECT minute, product, orders, cents FROM turnover WHERE product <> 'closing'")

        def table() -> dict[tuple[str, str], tuple[int, int]]:
            return {(minute.isoformat()[:16], product): (count, cents) for minute, product, count, cents in rows()}

        wait_until(lambda: table() == expected, lambda: f"{len(table())} of {len(expected)} rows are right")
        rejects = wait_until(lambda: len(actual := problems(postgres)) >= len(BAD) and actual, "what is bad is there")
        assert len(rejects) == len(BAD), rejects
        assert sum("a field is missing" in line for line in rejects) == 1
        # an order of an hour that is over corrects its row; one that is later goes aside
        corrected = dict(sent[-1], id="o8000", cents=1_000_000)
        send(kafka, topic, [corrected, dict(sent[0], id="too late"), BAD[0]])
        expected = turnover([*sent, corrected], 16)
        wait_until(lambda: table() == expected, "the row is corrected")
        wait_until(lambda: len(problems(postgres)) == len(BAD) + 2, "what is too late is there")
        assert sum("too late: Row(id='too late'" in line for line in problems(postgres)) == 1
    finally:
        job.cancel().result()
        ended(job)


def problems(postgres: PostgresServer) -> list[str]:
    return [line for (line,) in postgres.run("SELECT problem FROM rejects")]


def test_join_two_topics(here: Embedded, kafka: KafkaCluster) -> None:
    topics = [kafka.create_topic(partitions=2) for _ in range(4)]
    sent = orders(0, 2000)
    paid: list[Order] = []
    expected: Counter[tuple[Any, ...]] = Counter()
    for order in sent:
        number = int(order["id"][1:])
        for method, wait in (("card", number % 1200 - 10), ("cash", 7)):
            if method == "card" or number % 5 == 0:
                at = START + datetime.timedelta(seconds=number + wait)
                paid.append({"order": order["id"], "method": method, "time": f"{at.isoformat()}Z"})
                if -5 <= wait <= 900:
                    expected[order["id"], order["product"], order["cents"], method, float(wait)] += 1
    paid.sort(key=lambda payment: payment["time"])
    env = new_environment(2)
    env.enable_checkpointing(200)
    join_two_topics.build(env, kafka.bootstrap, topics)
    job = env.execute_async("paid orders")

    def actual(topic: str) -> list[Any]:
        return [json.loads(record.value or b"") for record in kafka.records(topic)]

    try:
        send(kafka, topics[0], [*sent[:1000], b"{"])
        send(kafka, topics[1], [*paid[:1000], {"order": "o5"}])
        wait_until(lambda: actual(topics[2]), "something is paid")
        die(job)
        send(kafka, topics[0], sent[1000:])
        send(kafka, topics[1], paid[1000:])
        count = expected.total()
        wait_until(lambda: len(actual(topics[2])) >= count, lambda: f"{len(actual(topics[2]))} of {count}")
        wait_until(lambda: len(actual(topics[3])) >= 2, "two records are bad")
    finally:
        job.cancel().result()
        ended(job)
    assert (
        Counter(
            (*(line[name] for name in ("order", "product", "cents", "method", "wait")),) for line in actual(topics[2])
        )
        == expected
    )
    assert sorted("no order or no time" in line["problem"] for line in actual(topics[3])) == [False, True]


def test_backfill(here: Embedded, kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)
    send(kafka, topic, (DATA / "orders.jsonl").read_bytes().splitlines())
    by_id: dict[str, Order] = {}  # the archive and the topic overlap
    for path in [*sorted((DATA / "orders").iterdir()), DATA / "orders.jsonl"]:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                order = json.loads(line)
                if order["product"] is not None and int(order["cents"]) and order["time"]:
                    by_id[order["id"]] = order
            except (ValueError, KeyError):
                continue
    env = new_environment(2)
    env.enable_checkpointing(200)
    backfill.build(env, DATA / "orders", "2026-11-27T12", kafka.bootstrap, topic, tmp_path, until_now=True)
    env.execute("turnover by hour")
    actual = {(line["hour"], line["product"]): (line["orders"], line["cents"]) for line in lines_of(tmp_path / "hours")}
    assert actual == turnover([*by_id.values()], 13)
    assert len(actual) == 12
    bad = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "bad").iterdir())
    assert [text in bad for text in ("T11.jsonl", "o7002", "many", "value: line 1")] == [True] * 4, bad
    assert bad.count("\n") == 4


def lines_of(folder: Path, parse: Callable[[str], Any] = json.loads) -> list[Any]:
    return [parse(line) for path in folder.iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
