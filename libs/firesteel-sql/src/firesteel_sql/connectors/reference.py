"""Renders docs/sql-connectors.md from declarations: ``python -m firesteel_sql.connectors.reference > the page``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from firesteel.config.option import Option
from firesteel.core.plugins import load
from firesteel.table.types import DataType
from firesteel_sql.connectors.connector import GROUP, TableConnector
from firesteel_sql.connectors.files import METADATA as FILE_METADATA
from firesteel_sql.connectors.formats.known import FORMATS, format_class
from firesteel_sql.connectors.kafka import READABLE, WRITABLE
from firesteel_sql.connectors.options import TableOptions
from firesteel_sql.connectors.watermark_options import WATERMARK_OPTIONS
from firesteel_sql.texts import type_text

CONNECTORS: Final = ("blackhole", "datagen", "filesystem", "jdbc", "kafka", "print", "upsert-kafka")
_NOTES: Final = {
    "filesystem": (
        "A table that is `PARTITIONED BY` columns has a directory `column=value` for each of their values; the columns "
        "do not stand in the files. Rows become visible with a checkpoint, each once. With `ignore-parse-errors` "
        "fields of JSON that can't be read are NULL, and whole lines of CSV are left out."
    ),
    "jdbc": (
        "A table with a PRIMARY KEY takes updates and deletes: `INSERT … ON CONFLICT` in PostgreSQL, SQLite, DuckDB, "
        "`ON DUPLICATE KEY UPDATE` in MySQL; of the changes of a key that wait, the last one is written. Rows are "
        "written at least once: by key the table ends right after a restart, and one without a key may hold rows "
        "twice. A name with capitals is not quoted, as in Flink: the database decides about its case."
    ),
    "kafka": (
        "Options of a format begin with `value.` if it is named by `value.format`, and with `key.` if by `key.format`. "
        "A record without a key has NULL for the columns of the key (Flink leaves such records out), and one without a "
        "value is left out. A format such as `debezium-json` gives changes, and takes them; others take rows that are "
        "appended."
    ),
    "upsert-kafka": "The columns of the PRIMARY KEY are the fields of keys. It is read from the beginning.",
}
_HEAD = """# Connectors and formats of SQL

`WITH ('connector' = '…', …)` of a table says where its rows are. Options have Flink's names, defaults and text forms.
One that is not in these tables is refused when the table is used, with the near name and a list of what there is;
secrets are not shown. `OPTIONS('key' = 'value')` as a hint behind a table's name changes them for one query.

A query whose rows change (an aggregate, a join, a Top-N) goes only into tables that take changes: `upsert-kafka`,
`jdbc` with a PRIMARY KEY, `kafka` with a format of changes, `print`, `blackhole`.

Timestamps in JSON are read in both standards, whatever the option says. A decimal number is rounded to its column's
type, and NULL where it has too many digits. What can't be read fails the job with topic, partition and offset or the
file, the field and the value.
"""


def render() -> str:
    """The text of docs/sql-connectors.md."""
    lines = [_HEAD]
    for name in CONNECTORS:
        connector: TableConnector = load(GROUP, name)()
        lines += [f"## `{name}`", "", _about(connector)]
        if name in _NOTES:
            lines += ["", _NOTES[name]]
        lines += ["", *_table(connector.OPTIONS)]
        lines += [f"| `{prefix}*` | | | {text} |" for prefix, text in connector.PREFIXES.items()]
        if connector.FORMATS:
            lines += ["", f"Formats: {', '.join(f'`{format_name}`' for format_name in connector.FORMATS)}."]
        if name == "filesystem":
            lines += ["", *_metadata(FILE_METADATA, {})]
        if name == "kafka":
            lines += ["", *_metadata(READABLE, WRITABLE)]
        lines.append("")
    lines += [
        "## Watermarks",
        "",
        "All connectors that read take these, and run a WATERMARK for each split (partition, file).",
        "",
    ]
    lines += [*_table(WATERMARK_OPTIONS), "", "## Formats", ""]
    for name in FORMATS:
        table_format = format_class(name)
        lines += [f"### `{name}`", "", _about(table_format), ""]
        if table_format.OPTIONS:
            lines += [*_table(table_format.OPTIONS), ""]
        inside = table_format(TableOptions("t", {})).metadata()
        if inside:
            lines += [*_metadata({f"value.{key}": kind for key, kind in inside.items()}, {}), ""]
    return "\n".join(lines)


def _about(documented: Any) -> str:
    kind = documented if isinstance(documented, type) else type(documented)
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split()).replace("``", "`")


def _table(options: Iterable[Option[Any]]) -> list[str]:
    lines = ["| Option | Default | Type | What it does |", "| --- | --- | --- | --- |"]
    for option in options:
        default = "" if option.default in (None, (), "") else f"`{option.type.show(option.default)}`"
        kind = ", ".join(f"`{name}`" for name in option.type.names) or option.type.name
        lines.append(f"| `{option.key}` | {default} | {kind} | {option.doc} |")
    return lines if len(lines) > 2 else ["It has no options."]


def _metadata(readable: Mapping[str, DataType], writable: Mapping[str, DataType]) -> list[str]:
    lines = ["| Metadata | Type | |", "| --- | --- | --- |"]
    for key, kind in readable.items():
        lines.append(f"| `{key}` | `{type_text(kind)}` | {'read and written' if key in writable else 'read'} |")
    return lines


if __name__ == "__main__":
    print(render(), end="")
