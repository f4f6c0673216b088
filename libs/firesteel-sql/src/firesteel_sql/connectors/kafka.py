"""``'connector' = 'kafka'`` and ``'connector' = 'upsert-kafka'``: tables in topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from firesteel.common.typeinfo import RowTypeInfo
from firesteel.config.option import DURATION, INT, LIST, STRING, Option, enum_of
from firesteel.connectors.delivery import DeliveryGuarantee
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from firesteel.table.types import DataType, DataTypes
from firesteel_sql.catalog.tables import TableColumn
from firesteel_sql.connectors.changelog import INSERT_ONLY, UPSERT, ChangelogMode
from firesteel_sql.connectors.connector import (
    SCAN_PARALLELISM,
    SINK_PARALLELISM,
    TableConnector,
    TableContext,
    in_parallel,
    read_source,
    row_type_of,
)
from firesteel_sql.connectors.formats.format import RowDecoder, RowEncoder, TableFormat
from firesteel_sql.connectors.formats.known import MESSAGE_FORMATS, format_of

if TYPE_CHECKING:
    from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer

TOPIC: Final[Option[tuple[str, ...] | None]] = Option("topic", LIST, None, "Names of topics, with semicolons between.")
TOPIC_PATTERN: Final[Option[str | None]] = Option(
    "topic-pattern", STRING, None, "Regular expression: all topics with such a name are read, also later ones."
)
FORMAT: Final[Option[str | None]] = Option("format", STRING, None, "Format of values; as `value.format`.")
VALUE_FORMAT: Final[Option[str | None]] = Option(
    "value.format", STRING, None, "Format of values; its options begin with `value.`."
)
KEY_FORMAT: Final[Option[str | None]] = Option(
    "key.format", STRING, None, "Format of keys; its options begin with `key.`."
)
KEY_FIELDS: Final = Option("key.fields", LIST, (), "Columns that stand in keys, with semicolons between.")
KEY_PREFIX: Final[Option[str]] = Option(
    "key.fields-prefix", STRING, "", "Beginning of the names of key columns, which fields of keys do not have."
)
FIELDS_INCLUDE: Final = Option(
    "value.fields-include", enum_of("ALL", "EXCEPT_KEY"), "ALL", "Whether columns of the key stand in values, too."
)
_MODES: Final = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
STARTUP_MODE: Final = Option("scan.startup.mode", enum_of(*_MODES), "group-offsets", "Where partitions begin.")
STARTUP_OFFSETS: Final[Option[str | None]] = Option(
    "scan.startup.specific-offsets", STRING, None, "`partition:0,offset:42;partition:1,offset:300`."
)
STARTUP_TIMESTAMP: Final[Option[int | None]] = Option(
    "scan.startup.timestamp-millis", INT, None, "Epoch milliseconds: records that are not older are read.", at_least=0
)
BOUNDED_MODE: Final = Option(
    "scan.bounded.mode",
    enum_of("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"),
    "unbounded",
    "Where partitions end, and the table with them.",
)
BOUNDED_OFFSETS: Final[Option[str | None]] = Option(
    "scan.bounded.specific-offsets", STRING, None, "As `scan.startup.specific-offsets`; these records are not read."
)
BOUNDED_TIMESTAMP: Final[Option[int | None]] = Option(
    "scan.bounded.timestamp-millis", INT, None, "Epoch milliseconds: records that are older are read.", at_least=0
)
DISCOVERY_INTERVAL: Final = Option(
    "scan.topic-partition-discovery.interval",
    DURATION,
    timedelta(minutes=5),
    "Pause between two looks for new partitions; 0 = none.",
)
PARTITIONER: Final = Option(
    "sink.partitioner",
    enum_of("default", "fixed", "round-robin"),
    "default",
    "Partition of a row: by its key, or one for each subtask, or any.",
)
GUARANTEE: Final = Option(
    "sink.delivery-guarantee",
    enum_of("at-least-once", "exactly-once", "none"),
    "at-least-once",
    "How often a row is delivered when the job is restarted.",
)
ID_PREFIX: Final[Option[str | None]] = Option(
    "sink.transactional-id-prefix", STRING, None, "Beginning of transactional ids; needed for exactly-once."
)
SERVERS: Final = "properties.bootstrap.servers"
GROUP: Final = "properties.group.id"
_HEADERS: Final = DataTypes.MAP(DataTypes.STRING(False), DataTypes.BYTES(False), False)
READABLE: Final[dict[str, DataType]] = {
    "topic": DataTypes.STRING(False),
    "partition": DataTypes.INT(False),
    "headers": _HEADERS,
    "leader-epoch": DataTypes.INT(),
    "offset": DataTypes.BIGINT(False),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3).not_null(),
    "timestamp-type": DataTypes.STRING(False),
}
WRITABLE: Final[dict[str, DataType]] = {
    "topic": DataTypes.STRING(),
    "headers": DataTypes.MAP(DataTypes.STRING(False), DataTypes.BYTES(False)),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3),
}


class KafkaConnector(TableConnector):
    """Reads topics as rows that are appended, or as changes if the format holds some; writes both."""

    OPTIONS: ClassVar[Sequence[Option[Any]]] = (
        TOPIC, TOPIC_PATTERN, FORMAT, VALUE_FORMAT, KEY_FORMAT, KEY_FIELDS, KEY_PREFIX, FIELDS_INCLUDE, STARTUP_MODE,
        STARTUP_OFFSETS, STARTUP_TIMESTAMP, BOUNDED_MODE, BOUNDED_OFFSETS, BOUNDED_TIMESTAMP, DISCOVERY_INTERVAL,
        SCAN_PARALLELISM, PARTITIONER, GUARANTEE, ID_PREFIX, SINK_PARALLELISM,
    )  # fmt: skip
    PREFIXES: ClassVar = {"properties.": "Properties of Kafka's clients, under their own names."}
    FORMATS: ClassVar = MESSAGE_FORMATS
    makes_watermarks = True
    is_upsert: ClassVar[bool] = False

    # -- declarations

    @override
    def formats(self, context: TableContext) -> Iterator[TableFormat]:
        yield self._value_format(context)
        key = self._key_format(context)
        if key is not None:
            yield key

    def _value_format(self, context: TableContext) -> TableFormat:
        options = context.options
        if options.has(FORMAT) and options.has(VALUE_FORMAT):
            raise options.refuse(VALUE_FORMAT.key, "is set, and 'format' as well: they are the same")
        if options.has(FORMAT):
            return format_of(options, FORMAT.key, options.required(FORMAT), self.FORMATS)
        return format_of(options, VALUE_FORMAT.key, options.required(VALUE_FORMAT), self.FORMATS, "value.")

    def _key_format(self, context: TableContext) -> TableFormat | None:
        name = context.options.get(KEY_FORMAT)
        if name is None:
            return None
        key_format = format_of(context.options, KEY_FORMAT.key, name, self.FORMATS, "key.")
        if not key_format.MODE.is_append:
            raise context.options.refuse(KEY_FORMAT.key, f"is '{name}', which holds changes: a key is a row")
        return key_format

    @override
    def source_mode(self, context: TableContext) -> ChangelogMode:
        mode = self._value_format(context).MODE
        if mode.is_append and context.table.primary_key:
            raise context.options.refuse(
                "format", f"is '{self._value_format(context).NAME}', whose rows are appended: two may have one key, so "
                "a PRIMARY KEY would not be true; rows replace each other with 'connector' = 'upsert-kafka'"
            )  # fmt: skip
        return mode

    @override
    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return self._value_format(context).MODE

    @override
    def readable_metadata(self, context: TableContext) -> Mapping[str, DataType]:
        inside = self._value_format(context).metadata()
        return {**READABLE, **{f"value.{key}": data_type for key, data_type in inside.items()}}

    @override
    def writable_metadata(self, context: TableContext) -> Mapping[str, DataType]:
        return WRITABLE

    # -- columns of keys and values

    def _key_columns(self, context: TableContext) -> list[TableColumn]:
        options = context.options
        names = options.get(KEY_FIELDS)
        if names and not options.has(KEY_FORMAT):
            raise options.refuse(KEY_FIELDS.key, "is set, and 'key.format' is not: it says how keys are written")
        if options.has(KEY_FORMAT) and not names:
            raise options.refuse(KEY_FORMAT.key, "is set, and 'key.fields' is not: it says which columns are in keys")
        by_name = {column.name: column for column in context.physical}
        prefix = options.get(KEY_PREFIX)
        for name in names:
            if name not in by_name:
                raise options.refuse(KEY_FIELDS.key, f"names {name}; the table has {', '.join(by_name)}")
            if not name.startswith(prefix):
                raise options.refuse(KEY_PREFIX.key, f"is '{prefix}', with which {name} of 'key.fields' does not begin")
        if prefix and options.get(FIELDS_INCLUDE) == "ALL":
            raise options.refuse(
                KEY_PREFIX.key, "is set, and 'value.fields-include' is 'ALL': write 'EXCEPT_KEY', or no prefix"
            )
        return [by_name[name] for name in names]

    def _value_columns(self, context: TableContext) -> list[TableColumn]:
        if context.options.get(FIELDS_INCLUDE) == "ALL":
            return list(context.physical)
        keys = {column.name for column in self._key_columns(context)}
        return [column for column in context.physical if column.name not in keys]

    def _fields_of_keys(self, context: TableContext) -> dict[str, str]:
        prefix = context.options.get(KEY_PREFIX)
        return {column.name: column.name.removeprefix(prefix) for column in self._key_columns(context)}

    # -- reading

    @override
    def read(self, environment: StreamExecutionEnvironment, context: TableContext) -> DataStream:
        from firesteel.datastream.connectors.kafka import KafkaSource
        from firesteel_sql.connectors.kafka_records import KafkaColumns, KindsOfColumn, TableRecordsSchema

        options = context.options
        mode = self.source_mode(context)
        key_fields = self._fields_of_keys(context)
        values = self._value_columns(context)
        columns = KafkaColumns(
            context.read_type, key_fields, {column.name: column.name for column in values},
            {column.name: column.metadata_key or "" for column in context.metadata},
            self.is_upsert, not mode.is_append,
        )  # fmt: skip
        key_format = self._key_format(context)
        key: RowDecoder | None = None
        if key_format is not None and key_fields:
            named = [replace(column, name=key_fields[column.name]) for column in self._key_columns(context)]
            key = key_format.decoder(row_type_of(named), _types(named))
        value = self._value_format(context).decoder(row_type_of(values), _types(values)) if values else None
        if value is not None:
            value.gives_metadata = any(key.startswith("value.") for key in columns.metadata.values())
        builder = KafkaSource.builder().set_deserializer(TableRecordsSchema(columns, key, value))
        topics, pattern = options.get(TOPIC), options.get(TOPIC_PATTERN)
        if (topics is None) == (pattern is None):
            raise options.refuse(TOPIC.key, "or 'topic-pattern' says what is read: one of them, and not both")
        builder = builder.set_topics(*topics) if topics is not None else builder.set_topic_pattern(pattern or "")
        builder = builder.set_starting_offsets(self._starting(context))
        if options.get(BOUNDED_MODE) != "unbounded":
            builder = builder.set_bounded(self._stopping(context))
        builder = builder.set_property(
            "partition.discovery.interval.ms", str(options.get(DISCOVERY_INTERVAL) // timedelta(milliseconds=1))
        )
        stream = read_source(environment, builder.set_properties(self._properties(context)).build(), context)
        if mode.is_append:
            return stream
        return in_parallel(stream.map_batches(KindsOfColumn(), context.read_type), context, SCAN_PARALLELISM)

    def _starting(self, context: TableContext) -> KafkaOffsetsInitializer:
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer

        options = context.options
        match options.get(STARTUP_MODE):
            case "earliest-offset":
                return KafkaOffsetsInitializer.earliest()
            case "latest-offset":
                return KafkaOffsetsInitializer.latest()
            case "timestamp":
                return KafkaOffsetsInitializer.timestamp(options.required(STARTUP_TIMESTAMP))
            case "specific-offsets":
                return KafkaOffsetsInitializer.offsets(self._offsets(context, STARTUP_OFFSETS))
        return self._of_group(context, STARTUP_MODE)

    def _stopping(self, context: TableContext) -> KafkaOffsetsInitializer:
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer

        options = context.options
        match options.get(BOUNDED_MODE):
            case "latest-offset":
                return KafkaOffsetsInitializer.latest()
            case "timestamp":
                return KafkaOffsetsInitializer.timestamp(options.required(BOUNDED_TIMESTAMP))
            case "specific-offsets":
                return KafkaOffsetsInitializer.offsets(self._offsets(context, BOUNDED_OFFSETS))
        return self._of_group(context, BOUNDED_MODE)

    def _of_group(self, context: TableContext, option: Option[str]) -> KafkaOffsetsInitializer:
        from firesteel.datastream.connectors.kafka import KafkaOffsetResetStrategy, KafkaOffsetsInitializer

        options = context.options
        if not options.raw(GROUP):
            raise options.refuse(
                option.key, f"is 'group-offsets': those of which group, says '{GROUP}'; 'earliest-offset' needs none"
            )
        resets = {"earliest": KafkaOffsetResetStrategy.EARLIEST, "latest": KafkaOffsetResetStrategy.LATEST}
        reset = options.raw("properties.auto.offset.reset") or ""
        return KafkaOffsetsInitializer.committed_offsets(resets.get(reset, KafkaOffsetResetStrategy.NONE))

    def _offsets(self, context: TableContext, option: Option[str | None]) -> dict[Any, int]:
        from firesteel.datastream.connectors.kafka import KafkaTopicPartition

        options = context.options
        text, topics = options.required(option), options.get(TOPIC)
        if topics is None or len(topics) != 1:
            raise options.refuse(option.key, "names partitions of one topic: give one 'topic'")
        offsets = {}
        for part in text.strip().rstrip(";").split(";"):
            match = re.fullmatch(r"\s*partition:(\d+)\s*,\s*offset:(\d+)\s*", part)
            if match is None:
                raise options.refuse(
                    option.key, f"is '{text}', and has to be like 'partition:0,offset:42;partition:1,offset:300'"
                )
            offsets[KafkaTopicPartition(topics[0], int(match[1]))] = int(match[2])
        return offsets

    def _properties(self, context: TableContext) -> dict[str, str]:
        properties = context.options.with_prefix("properties.")
        if "bootstrap.servers" not in properties:
            raise context.options.refuse(SERVERS, "is missing: the addresses of brokers, host:port")
        return properties

    # -- writing

    @override
    def write(self, stream: DataStream, context: TableContext) -> None:
        from firesteel.datastream.connectors.kafka import KafkaSink
        from firesteel_sql.connectors.kafka_records import ENCODED, EncodeRecords, TableProducerSchema

        options = context.options
        topics = options.get(TOPIC)
        written = {column.metadata_key or "": column.name for column in context.metadata if not column.is_virtual}
        if topics is None or (len(topics) > 1 and "topic" not in written):
            raise options.refuse(
                TOPIC.key, "has to be the one that rows are written to, or rows have the metadata 'topic'"
            )
        values, key_fields, keys = (
            self._value_columns(context),
            self._fields_of_keys(context),
            self._key_columns(context),
        )
        key_format = self._key_format(context)
        key: RowEncoder | None = None
        if key_format is not None and keys:
            key = key_format.for_topic(topics[0], "key").encoder(_renamed(row_type_of(keys), key_fields), _types(keys))
        value: RowEncoder | None = None
        if values:
            value_format = self._value_format(context).for_topic(topics[0], "value")
            value = value_format.encoder(row_type_of(values), _types(values))
        encode = EncodeRecords(
            key, [column.name for column in keys], value, [column.name for column in values], written,
            is_upsert=self.is_upsert,
        )  # fmt: skip
        schema = TableProducerSchema(topics, is_fixed=options.get(PARTITIONER) == "fixed")
        builder = KafkaSink.builder().set_record_serializer(schema)
        guarantee = DeliveryGuarantee[options.get(GUARANTEE).upper().replace("-", "_")]
        builder = builder.set_delivery_guarantee(guarantee)
        prefix = options.get(ID_PREFIX)
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            builder = builder.set_transactional_id_prefix(options.required(ID_PREFIX))
        elif prefix is not None:
            builder = builder.set_transactional_id_prefix(prefix)
        for name, text in self._properties(context).items():
            builder = builder.set_property(name, text)
        if (
            options.has(SINK_PARALLELISM)
            and not self.sink_mode(context, INSERT_ONLY).is_append
            and context.table.primary_key
        ):
            stream = stream.key_by(list(context.table.primary_key))  # changes of a row stay in their order
        encoded = in_parallel(stream.map_batches(encode, ENCODED), context, SINK_PARALLELISM)
        in_parallel(encoded.sink_to(builder.build()), context, SINK_PARALLELISM)


SINK_BUFFER_ROWS: Final = Option(
    "sink.buffer-flush.max-rows", INT, 0, "Refused above 0: changes of a key are not gathered.", at_least=0
)
SINK_BUFFER_INTERVAL: Final = Option(
    "sink.buffer-flush.interval", DURATION, timedelta(), "Refused above 0: changes of a key are not gathered."
)


class UpsertKafkaConnector(KafkaConnector):
    """A topic as a table with a primary key: the last record of a key is its row, one without a value deletes it."""

    OPTIONS = (
        TOPIC, TOPIC_PATTERN, VALUE_FORMAT, KEY_FORMAT, KEY_PREFIX, FIELDS_INCLUDE, BOUNDED_MODE, BOUNDED_OFFSETS,
        BOUNDED_TIMESTAMP, DISCOVERY_INTERVAL, SCAN_PARALLELISM, GUARANTEE, ID_PREFIX, SINK_BUFFER_ROWS,
        SINK_BUFFER_INTERVAL, SINK_PARALLELISM,
    )  # fmt: skip
    is_upsert = True

    @override
    def formats(self, context: TableContext) -> Iterator[TableFormat]:
        options = context.options
        for option in (KEY_FORMAT, VALUE_FORMAT):
            options.required(option)
        if not context.table.primary_key:
            raise options.refuse(
                "connector",
                "is 'upsert-kafka', which needs a PRIMARY KEY (…) NOT ENFORCED: the columns of records' keys",
            )
        for table_format in super().formats(context):
            if not table_format.MODE.is_append:
                raise options.refuse(
                    VALUE_FORMAT.key, f"is '{table_format.NAME}', which holds changes: 'connector' = 'kafka' reads them"
                )
            yield table_format

    @override
    def source_mode(self, context: TableContext) -> ChangelogMode:
        return UPSERT

    @override
    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return UPSERT

    @override
    def write(self, stream: DataStream, context: TableContext) -> None:
        gathers = {SINK_BUFFER_ROWS.key: context.options.get(SINK_BUFFER_ROWS) > 0}
        gathers[SINK_BUFFER_INTERVAL.key] = context.options.get(SINK_BUFFER_INTERVAL) > timedelta()
        for key, is_set in gathers.items():
            if is_set:
                raise context.options.refuse(key, "is above 0: changes are not gathered, each is written")
        super().write(stream, context)

    @override
    def _key_columns(self, context: TableContext) -> list[TableColumn]:
        prefix = context.options.get(KEY_PREFIX)
        by_name = {column.name: column for column in context.physical}
        for name in context.table.primary_key:
            if name not in by_name:
                raise context.options.refuse(
                    "connector", f"is 'upsert-kafka': {name} of the PRIMARY KEY is no column of it"
                )
            if not name.startswith(prefix):
                problem = f"is '{prefix}', with which {name} of the PRIMARY KEY does not begin"
                raise context.options.refuse(KEY_PREFIX.key, problem)
        return [by_name[name] for name in context.table.primary_key]

    @override
    def _starting(self, context: TableContext) -> KafkaOffsetsInitializer:
        from firesteel.datastream.connectors.kafka import KafkaOffsetsInitializer

        return KafkaOffsetsInitializer.earliest()


def _types(columns: Sequence[TableColumn]) -> list[DataType]:
    return [column.type for column in columns if column.type is not None]


def _renamed(row_type: RowTypeInfo, names: Mapping[str, str]) -> RowTypeInfo:
    return RowTypeInfo(list(row_type.field_types), [names[name] for name in row_type.field_names])
