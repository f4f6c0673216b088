"""Tables in topics: records become rows with kinds and metadata, rows become records, options go together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firesteel.common.time import Instant
from firesteel.core.errors import ProgramError
from firesteel.expressions.values import records_of, row_values
from firesteel_kafka.deserialization import ConsumerRecord, ConsumerRecords
from firesteel_sql import EnvironmentSettings, TableEnvironment
from firesteel_sql.catalog.tables import CatalogTable
from firesteel_sql.connectors.connector import connector_of
from firesteel_sql.connectors.formats.format import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from firesteel_sql.connectors.kafka_records import ENCODED, EncodeRecords, KindsOfColumn, TableProducerSchema

BROKERS = {"properties.bootstrap.servers": "nowhere:1", "scan.startup.mode": "earliest-offset"}
UPSERT_BROKERS = {"properties.bootstrap.servers": "nowhere:1"}


class Recorded:
    """Stands for the environment and the streams: takes down what the connector builds."""

    def __init__(self) -> None:
        self.source: Any = None
        self.functions: list[Any] = []
        self.sinks: list[Any] = []
        self.parallelism: list[int] = []

    def from_source(self, source: Any, strategy: Any, name: str) -> Recorded:
        self.source = source
        return self

    def map_batches(self, function: Any, result: Any) -> Recorded:
        self.functions.append(function)
        return self

    def sink_to(self, sink: Any) -> Recorded:
        self.sinks.append(sink)
        return self

    def key_by(self, columns: list[str]) -> Recorded:
        self.functions.append(columns)
        return self

    def set_parallelism(self, parallelism: int) -> Recorded:
        self.parallelism.append(parallelism)
        return self


def declared(columns: str, options: dict[str, str]) -> CatalogTable:
    tables = TableEnvironment.create()
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ({written})")
    entry = tables._catalogs.find(("t",))[1]
    assert isinstance(entry, CatalogTable)
    return entry


def reader(columns: str, **options: str) -> tuple[Any, Recorded]:
    """The schema that reads records, and what else was built."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    base = UPSERT_BROKERS if given.get("connector") == "upsert-kafka" else BROKERS
    table = declared(columns, {"connector": "kafka", "topic": "orders", **base, **given})
    connector, context = connector_of(("c", "d", "t"), table)
    environment: Any = Recorded()
    connector.read(environment, context)
    return environment.source._settings.schema, environment


def read(schema: Any, *records: tuple[bytes | None, bytes | None]) -> list[list[Any]]:
    """Rows by columns; those of single records have to be the same."""
    raw = [
        SimpleNamespace(
            key=key, value=value, offset=10 + place, timestamp=1000 + place, timestamp_type=place % 2,
            headers=(("h", b"1"), ("h", b"2")),
        )
        for place, (key, value) in enumerate(records)
    ]  # fmt: skip
    stamps = np.array([record.timestamp for record in raw], np.int64)
    result = schema.deserialize_columns(ConsumerRecords("orders", 3, raw, stamps))
    assert result is not None
    rows, origins = result
    assert stamps[origins].tolist() == sorted(stamps[origins].tolist()), "rows stay in the order of their records"
    declared_type = schema.get_produced_type()
    names = tuple(declared_type.field_names)
    by_columns = [list(row_values(row, names)) for row in records_of(rows, declared_type)]
    one_by_one = [
        list(row_values(row, names))
        for r in raw
        for row in schema.deserialize(
            ConsumerRecord("orders", 3, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
        )
    ]
    assert one_by_one == by_columns
    return by_columns


def test_values_keys_and_metadata() -> None:
    schema, built = reader(
        "k_id BIGINT, name STRING, part INT METADATA FROM 'partition' VIRTUAL, `offset` BIGINT METADATA VIRTUAL, "
        "at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', kind STRING METADATA FROM 'timestamp-type' VIRTUAL, "
        "headers MAP<STRING, BYTES> METADATA, topic STRING METADATA VIRTUAL, epoch INT METADATA FROM 'leader-epoch'",
        key_format="json", key_fields="k_id", **{"key_fields__prefix": "k_", "value_fields__include": "EXCEPT_KEY"},
        value_format="json",
    )  # fmt: skip
    rows = read(schema, (b'{"id":1}', b'{"name":"a"}'), (b'{"id":2}', None), (None, b'{"name":"c"}'))
    headers = {"h": b"2"}
    assert rows == [
        [1, "a", 3, 10, Instant.of_epoch_milli(1000), "CreateTime", headers, "orders", None],
        [None, "c", 3, 12, Instant.of_epoch_milli(1002), "CreateTime", headers, "orders", None],
    ]
    assert built.functions == [], "rows that are appended need no kinds"


def test_rows_of_a_topic_with_upserts() -> None:
    schema, built = reader(
        "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
        connector="upsert-kafka", key_format="json", value_format="json",
    )  # fmt: skip
    rows = read(
        schema, (b'{"id":1}', b'{"id":1,"name":"a"}'), (b'{"id":2}', None), (b'{"id":1}', b'{"id":1,"name":"b"}')
    )
    assert rows == [[1, "a", INSERT], [2, None, DELETE], [1, "b", INSERT]]
    assert read(schema, (b'{"id":2}', None)) == [[2, None, DELETE]]
    (function,) = built.functions
    assert isinstance(function, KindsOfColumn)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([INSERT, DELETE], pa.int8())], ["id", "$kind"])
    plain, kinds, stamps = function.map_changes(batch, None, np.array([5, 6]))
    assert (plain.schema.names, None if kinds is None else kinds.tolist()) == (["id"], [INSERT, DELETE])
    assert stamps is not None
    assert function.map_changes(batch.slice(0, 1), None, None)[1] is None, "rows that are all inserted have no kinds"


def test_changes_with_their_metadata() -> None:
    schema, _ = reader(
        "id BIGINT, db STRING METADATA FROM 'value.source.database' VIRTUAL, `offset` BIGINT METADATA VIRTUAL",
        format="debezium-json",
    )
    update = b'{"before":{"id":1},"after":{"id":2},"op":"u","source":{"db":"shop"}}'
    insert = b'{"after":{"id":3},"op":"c"}'
    assert read(schema, (None, update), (None, None), (None, insert)) == [
        [1, "shop", 10, UPDATE_BEFORE], [2, "shop", 10, UPDATE_AFTER], [3, None, 12, INSERT],
    ]  # fmt: skip


def test_a_broken_record_is_found_in_its_key_and_in_its_value() -> None:
    schema, _ = reader("id BIGINT, name STRING", key_format="json", key_fields="id", value_format="json")
    for key, value, problem in (
        (b"x", b'{"id":1}', "the key: malformed JSON"),
        (b'{"id":1}', b'{"id":"x"}', "field 'id'"),
    ):
        raw = SimpleNamespace(key=key, value=value, offset=1, timestamp=1, timestamp_type=0, headers=())
        assert schema.deserialize_columns(ConsumerRecords("orders", 0, [raw], np.array([1]))) is None
        with pytest.raises(ValueError, match=problem):
            list(schema.deserialize(ConsumerRecord("orders", 0, 1, 1, 0, key, value, ())))


# -- writing


def encoder(columns: str, **options: str) -> tuple[EncodeRecords, TableProducerSchema, Recorded, Any]:
    given = {key.replace("__", "-").replace("_", "."): value for key, value in options.items()}
    base = UPSERT_BROKERS if given.get("connector") == "upsert-kafka" else BROKERS
    table = declared(columns, {"connector": "kafka", "topic": "orders", **base, **given})
    connector, context = connector_of(("c", "d", "t"), table, writes=True)
    stream: Any = Recorded()
    connector.write(stream, context)
    (sink,) = stream.sinks
    encode = stream.functions[-1]
    assert isinstance(encode, EncodeRecords)
    return encode, sink._settings.schema, stream, sink._settings


def written(
    encode: EncodeRecords, schema: TableProducerSchema, rows: pa.RecordBatch, kinds: list[int] | None
) -> list[Any]:
    codes = None if kinds is None else np.array(kinds, np.int8)
    batch, result_kinds, _ = encode.map_changes(rows, codes, None)
    assert result_kinds is None
    schema.open(lambda topic: [0, 1, 2])
    records = list(schema.serialize_columns(batch))
    assert list(schema.serialize_all(records_of(batch, ENCODED), None)) == records, "rows are written as columns are"
    return records


def test_upserts_and_deletes_are_written() -> None:
    encode, schema, _, _ = encoder(
        "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED",
        connector="upsert-kafka", key_format="json", value_format="json",
    )  # fmt: skip
    rows = pa.RecordBatch.from_pydict({"id": [1, 1, 1, 2], "name": ["a", "a", "b", "c"]})
    records = written(encode, schema, rows, [INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE])
    assert [(record.key, record.value, record.topic) for record in records] == [
        (b'{"id":1}', b'{"id":1,"name":"a"}', "orders"),
        (b'{"id":1}', b'{"id":1,"name":"b"}', "orders"),
        (b'{"id":2}', None, "orders"),
    ]


def test_metadata_is_written_and_a_subtask_has_its_partition() -> None:
    encode, schema, stream, settings = encoder(
        "k_id BIGINT, name STRING, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA, "
        "`offset` BIGINT METADATA VIRTUAL",
        value_format="csv", key_format="raw", key_fields="k_id",
        **{"key_fields__prefix": "k_", "value_fields__include": "EXCEPT_KEY", "sink_partitioner": "fixed",
           "sink_parallelism": "3", "sink_delivery__guarantee": "exactly-once", "sink_transactional__id__prefix": "p"},
    )  # fmt: skip
    assert (settings.guarantee.name, settings.prefix, set(stream.parallelism)) == ("EXACTLY_ONCE", "p", {3})
    encode.open(SimpleNamespace(get_index_of_this_subtask=lambda: 4))  # type: ignore[arg-type]
    moment = pa.array([1_000_500, None], pa.timestamp("us", "UTC"))
    headers = pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary()))
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array(["x", "y"]), moment, headers], ["k_id", "name", "at", "headers"]
    )
    first, second = written(encode, schema, rows, None)
    assert first == ("orders", b"x", b"\0\0\0\0\0\0\0\1", 1, 1000, (("a", b"1"),))
    assert second == ("orders", b"y", b"\0\0\0\0\0\0\0\2", 1, None, ())


def test_changes_are_written_as_messages_of_their_format() -> None:
    encode, schema, _, _ = encoder("id BIGINT", format="debezium-json")
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
    assert [record.value for record in written(encode, schema, rows, [UPDATE_BEFORE, UPDATE_AFTER])] == [
        b'{"before":{"id":1},"after":null,"op":"d"}', b'{"before":null,"after":{"id":2},"op":"c"}',
    ]  # fmt: skip


def test_rows_say_their_topic() -> None:
    encode, schema, _, _ = encoder("id BIGINT, topic STRING METADATA", topic="a;b", format="json")
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "topic": ["a", "b"]})
    assert [record.topic for record in written(encode, schema, rows, None)] == ["a", "b"]
    with pytest.raises(ValueError, match="the topic 'c', which is none of a, b"):
        written(encode, schema, pa.RecordBatch.from_pydict({"id": [1], "topic": ["c"]}), None)


# -- options


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("id INT", {}, "'value.format' is missing"),
        ("id INT", {"format": "json", "value.format": "json"}, "they are the same"),
        ("id INT", {"format": "parquet"}, "'format' is 'parquet'"),
        ("id INT", {"format": "json", "topic": ""}, "takes"),
        ("id INT", {"format": "json", "topic-pattern": "x"}, "one of them, and not both"),
        ("id INT", {"format": "json", "scan.startup.mode": "earliest"}, "has to be one of earliest-offset"),
        ("id INT", {"format": "json", "scan.startup.mode": "group-offsets"}, "'properties.group.id'"),
        ("id INT", {"format": "json", "scan.startup.mode": "timestamp"}, "'scan.startup.timestamp-millis' is missing"),
        ("id INT", {"format": "json", "scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"},
         "partition:0,offset:42"),
        ("id INT", {"format": "json", "key.fields": "id"}, "'key.format' is not"),
        ("id INT", {"format": "json", "key.format": "json"}, "'key.fields' is not"),
        ("id INT", {"format": "json", "key.format": "json", "key.fields": "x"}, "names x; the table has id"),
        ("id INT", {"format": "json", "key.format": "json", "key.fields": "id", "key.fields-prefix": "k_"},
         "does not begin"),
        ("id INT", {"format": "json", "key.format": "debezium-json", "key.fields": "id"}, "a key is a row"),
        ("id INT, PRIMARY KEY (id) NOT ENFORCED", {"format": "json"}, "would not be true"),
        ("id INT", {"format": "json", "json.ignore-parse-error": "true"}, "did you mean json.ignore-parse-errors?"),
        ("id INT", {"value.format": "json", "json.ignore-parse-errors": "true"}, "value.json.ignore-parse-errors"),
        ("id INT", {"connector": "upsert-kafka", "value.format": "json"}, "'key.format' is missing"),
        ("id INT", {"connector": "upsert-kafka", "value.format": "json", "key.format": "json"}, "needs a PRIMARY KEY"),
        ("id INT, PRIMARY KEY (id) NOT ENFORCED",
         {"connector": "upsert-kafka", "value.format": "debezium-json", "key.format": "json"}, "holds changes"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(columns: str, options: dict[str, str], problem: str) -> None:
    base = UPSERT_BROKERS if options.get("connector") == "upsert-kafka" else BROKERS
    table = declared(columns, {"connector": "kafka", "topic": "orders", **base, **options})
    environment: Any = Recorded()

    def build() -> None:
        connector, context = connector_of(("c", "d", "t"), table)
        connector.read(environment, context)

    with pytest.raises((ProgramError, TypeError)) as caught:
        build()
    assert problem in str(caught.value)


def test_offsets_and_bounds() -> None:
    _, built = reader(
        "id INT", format="json",
        **{"scan_startup_mode": "specific-offsets",
           "scan_startup_specific__offsets": "partition:0,offset:42;partition:1,offset:3",
           "scan_bounded_mode": "latest-offset", "scan_parallelism": "2"},
    )  # fmt: skip
    settings = built.source._settings
    found = {partition.partition: offset for partition, offset in settings.starting._offsets.items()}
    assert (found, settings.bounded, built.parallelism) == ({0: 42, 1: 3}, True, [2])


def test_tables_of_changes_are_refused_in_batch_mode() -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    tables.execute_sql(
        "CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = 'x', "
        "'properties.bootstrap.servers' = 'nowhere:1', 'format' = 'debezium-json', "
        "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"
    )
    with pytest.raises(ProgramError, match=r"gives changes .*in batch mode tables have rows only"):
        tables.execute_sql("SELECT COUNT(*) FROM t")
