"""Formats by the names that tables give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from firesteel.core.plugins import import_target
from firesteel_sql.catalog.catalogs import near
from firesteel_sql.connectors.formats.format import TableFormat
from firesteel_sql.connectors.options import TableOptions

FORMATS: Final = {
    "avro": "firesteel_sql.connectors.formats.avro:AvroTableFormat",
    "avro-confluent": "firesteel_sql.connectors.formats.avro:ConfluentAvroTableFormat",
    "canal-json": "firesteel_sql.connectors.formats.json:CanalJsonFormat",
    "csv": "firesteel_sql.connectors.formats.csv:CsvTableFormat",
    "debezium-json": "firesteel_sql.connectors.formats.json:DebeziumJsonFormat",
    "json": "firesteel_sql.connectors.formats.json:JsonTableFormat",
    "maxwell-json": "firesteel_sql.connectors.formats.json:MaxwellJsonFormat",
    "ogg-json": "firesteel_sql.connectors.formats.json:OggJsonFormat",
    "parquet": "firesteel_sql.connectors.formats.parquet:ParquetTableFormat",
    "raw": "firesteel_sql.connectors.formats.raw:RawTableFormat",
}
"""Name of the format -> its class, which is imported when a table needs it."""
FILE_FORMATS: Final = ("avro", "csv", "json", "parquet")
MESSAGE_FORMATS: Final = tuple(name for name in FORMATS if name != "parquet")


def format_class(name: str) -> type[TableFormat]:
    """The class of a format."""
    found: type[TableFormat] = import_target(FORMATS[name])
    return found


def format_of(options: TableOptions, key: str, name: str, supported: Iterable[str], prefix: str = "") -> TableFormat:
    """The format of a table.

    Args:
        options: those of the table.
        key: the option that names the format.
        name: its value.
        supported: formats that the connector has.
        prefix: in front of the format's options.

    Raises:
        TableOptionError: the connector does not have the format.
    """
    known = sorted(supported)
    if name not in known:
        raise options.refuse(key, f"is '{name}'{near(name, known) or '; there are ' + ', '.join(known)}")
    return format_class(name)(options.below(prefix))
