"""Tables in topics of a real Kafka: broken records, metadata, upserts; a job that is killed writes each row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core.errors import FiresteelError
from firesteel_sql import EnvironmentSettings, TableEnvironment
from tests.integration.recovery.places import Embedded, embedded
from tests.servers.kafka.server import KafkaCluster

pytestmark = [pytest.mark.may_skip(reason="Kafka comes by Maven"), pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def place() -> Iterator[Embedded]:
    with embedded() as place:
        yield place


def new_tables(**settings: str) -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    for key, value in settings.items():
        tables.get_config().set(key, value)
    return tables


def declare(tables: TableEnvironment, kafka: KafkaCluster, name: str, columns: str, **options: str) -> None:
    given = {"connector": "kafka", "topic": name, "properties.bootstrap.servers": kafka.bootstrap, **options}
    written = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    tables.execute_sql(f"CREATE TABLE `{name}` ({columns}) WITH ({written})")


def rows(tables: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in tables.execute_sql(query).collect()), key=str)


BOUNDED = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}


def test_broken_records_say_their_place_or_are_ignored(kafka: KafkaCluster, place: Embedded) -> None:
    topic = kafka.create_topic(retention__ms=-1)
    values = [b'{"id": 1, "price": 1.005}', b'{"id": "x", "price": 2}', b"{", None, b'{"id": 4}']
    kafka.produce(topic, [(b"k", value) for value in values], timestamp_ms=1_700_000_000_123, headers=[("h", b"v")])
    columns = (
        "id BIGINT, price DECIMAL(5, 2), n BIGINT METADATA FROM 'offset' VIRTUAL, at TIMESTAMP(3) METADATA FROM "
        "'timestamp', h MAP<STRING, BYTES> METADATA FROM 'headers', WATERMARK FOR at AS at - INTERVAL '1' SECOND"
    )
    tables = new_tables()
    declare(tables, kafka, topic, columns, format="json", **BOUNDED)
    with pytest.raises(FiresteelError, match=rf"topic '{topic}', partition 0, offset 1: malformed JSON .*field 'id'"):
        rows(tables, f"SELECT id FROM `{topic}`")
    hint = "/*+ OPTIONS('json.ignore-parse-errors' = 'true') */"
    found = rows(tables, f"SELECT id, price, n, DATE_FORMAT(at, 'yyyy-MM-dd HH:mm:ss'), h['h'] FROM `{topic}` {hint}")
    moment = "2023-11-14 22:13:20"
    assert [(row[0], str(row[1]), *row[2:]) for row in found] == [
        (1, "1.01", 0, moment, b"v"), (4, "None", 4, moment, b"v"), (None, "2.00", 1, moment, b"v"),
    ]  # fmt: skip


def test_a_changing_query_becomes_a_topic_with_keys_and_a_table_again(kafka: KafkaCluster, place: Embedded) -> None:
    changes, totals = kafka.create_topic(), kafka.create_topic()
    messages = [
        {"before": None, "after": {"id": 1, "shop": "a"}, "op": "c"},
        {"before": None, "after": {"id": 2, "shop": "a"}, "op": "c"},
        {"before": None, "after": {"id": 3, "shop": "b"}, "op": "c"},
        {"before": {"id": 2, "shop": "a"}, "after": {"id": 2, "shop": "c"}, "op": "u"},
        {"before": {"id": 3, "shop": "b"}, "after": None, "op": "d"},
    ]
    kafka.produce(changes, [(None, json.dumps(message).encode()) for message in messages])
    tables = new_tables()
    declare(tables, kafka, changes, "id BIGINT, shop STRING", format="debezium-json", **BOUNDED)
    columns = "shop STRING, n BIGINT, PRIMARY KEY (shop) NOT ENFORCED"
    upsert = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
    declare(tables, kafka, totals, columns, **upsert, **{"scan.bounded.mode": "latest-offset"})
    tables.execute_sql(f"INSERT INTO `{totals}` SELECT shop, COUNT(*) FROM `{changes}` GROUP BY shop").wait()
    last = {record.key: record.value for record in kafka.records(totals)}
    assert last == {
        b'{"shop":"a"}': b'{"shop":"a","n":1}', b'{"shop":"b"}': None, b'{"shop":"c"}': b'{"shop":"c","n":1}',
    }  # fmt: skip
    table: dict[str, int] = {}
    for row in tables.execute_sql(f"SELECT shop, n FROM `{totals}`").collect():
        kind = str(row.get_row_kind())
        if kind in ("+I", "+U"):
            table[row[0]] = row[1]
        else:
            assert table.pop(row[0]) == row[1], "the row before is the one that was"
    assert table == {"a": 1, "c": 1}


KILLER = """
import os
import signal


def survives(number: int) -> int:
    # The slot dies once, in the middle of the rows.
    if number == 3000 and not os.path.exists("{marker}"):
        open("{marker}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return number
"""


def test_a_killed_job_and_one_beside_it_write_each_row_once(
    kafka: KafkaCluster, place: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "sql_killer.py"
    module.write_text(KILLER.format(marker=tmp_path / "killed"))
    results = []
    topics = [kafka.create_topic(partitions=2), kafka.create_topic()]
    for number, topic in enumerate(topics):
        tables = new_tables(**{
            "execution.checkpointing.interval": "300 ms",
            "python.files": str(module),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "100 ms",
        })  # fmt: skip
        tables.execute_sql(
            "CREATE TABLE numbers (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', "
            "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '5000')"
        )
        tables.execute_sql("CREATE TEMPORARY FUNCTION survives AS 'sql_killer.survives' LANGUAGE PYTHON")
        once = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": f"sql-{topic}"}
        declare(tables, kafka, topic, "id INT", format="raw", **once)
        value = "id" if number else "survives(id)"
        results.append(tables.execute_sql(f"INSERT INTO `{topic}` SELECT {value} FROM numbers"))
    for result in results:
        result.wait()
    assert (tmp_path / "killed").exists()
    for topic in topics:
        written = sorted(int.from_bytes(record.value or b"") for record in kafka.records(topic))
        assert written == list(range(1, 5001)), topic
