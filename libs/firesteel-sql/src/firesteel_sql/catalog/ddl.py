"""Declarations as the statements that make them again: SHOW CREATE shows them, the file catalog keeps them."""

from __future__ import annotations

from collections.abc import Mapping

from firesteel.core.sensitive import MASK, is_sensitive
from firesteel_sql.catalog.tables import (
    CatalogDatabase,
    CatalogFunction,
    CatalogObject,
    CatalogTable,
    CatalogView,
    TableColumn,
)
from firesteel_sql.texts import type_text


def quoted_name(*parts: str) -> str:
    """A name in backquotes, with dots between its parts."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def quoted_text(value: str) -> str:
    """A text in quotes."""
    return "'" + value.replace("'", "''") + "'"


def create_text(path: tuple[str, ...], entry: CatalogObject, *, masks_secrets: bool, is_temporary: bool = False) -> str:
    """The statement that declares this again.

    Args:
        path: the name to declare it under.
        entry: a table, view or function.
        masks_secrets: whether secrets among the options of a table become stars.
        is_temporary: whether it is a temporary one.
    """
    create = "CREATE TEMPORARY" if is_temporary else "CREATE"
    match entry:
        case CatalogTable():
            return f"{create} TABLE {quoted_name(*path)} {_table_text(entry, masks_secrets)}"
        case CatalogView():
            columns = f" ({', '.join(map(quoted_name, entry.columns))})" if entry.columns else ""
            comment = "" if entry.comment is None else f"\nCOMMENT {quoted_text(entry.comment)}"
            return f"{create} VIEW {quoted_name(*path)}{columns}{comment} AS\n{entry.text}"
        case CatalogFunction():
            return f"{create} FUNCTION {quoted_name(*path)} AS {quoted_text(entry.target)} LANGUAGE {entry.language}"


def _table_text(table: CatalogTable, masks_secrets: bool) -> str:
    parts = [_column_text(column) for column in table.columns]
    if table.watermark is not None:
        parts.append(f"WATERMARK FOR {quoted_name(table.watermark.column)} AS {table.watermark.written}")
    if table.primary_key:
        constraint = "" if table.constraint is None else f"CONSTRAINT {quoted_name(table.constraint)} "
        parts.append(f"{constraint}PRIMARY KEY ({', '.join(map(quoted_name, table.primary_key))}) NOT ENFORCED")
    lines = ["(\n  " + ",\n  ".join(parts) + "\n)"] if parts else []
    if table.comment is not None:
        lines.append(f"COMMENT {quoted_text(table.comment)}")
    if table.partitioned_by:
        lines.append(f"PARTITIONED BY ({', '.join(map(quoted_name, table.partitioned_by))})")
    if table.options:
        lines.append(f"WITH {options_text(table.options, masks_secrets)}")
    return "\n".join(lines)


def _column_text(column: TableColumn) -> str:
    text = quoted_name(column.name)
    if column.computed is not None:
        text += f" AS {column.written}"
    else:
        assert column.type is not None
        text += f" {type_text(column.type)}"
    if column.metadata_key is not None:
        text += f" METADATA FROM {quoted_text(column.metadata_key)}" + (" VIRTUAL" if column.is_virtual else "")
    return text if column.comment is None else f"{text} COMMENT {quoted_text(column.comment)}"


def options_text(options: Mapping[str, str], masks_secrets: bool) -> str:
    """``('key' = 'value', ...)``, a line for each."""
    pairs = [
        f"{quoted_text(key)} = {quoted_text(MASK if masks_secrets and is_sensitive(key) else value)}"
        for key, value in options.items()
    ]
    return "(\n  " + ",\n  ".join(pairs) + "\n)"


def create_database_text(path: tuple[str, ...], database: CatalogDatabase) -> str:
    """``CREATE DATABASE`` of a database."""
    text = f"CREATE DATABASE {quoted_name(*path)}"
    if database.comment is not None:
        text += f"\nCOMMENT {quoted_text(database.comment)}"
    if database.options:
        text += f"\nWITH {options_text(database.options, False)}"
    return text
