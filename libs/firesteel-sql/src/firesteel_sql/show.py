"""SHOW CREATE: the statement that makes a table or view again."""

from __future__ import annotations

from firesteel_sql.catalog.tables import CatalogTable, CatalogView, Identifier, TableColumn
from firesteel_sql.texts import type_text

_SECRET = ("password", "secret", "token", "access-key", "sasl.jaas.config", "api-key")


def _name(*parts: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def create_table_text(identifier: Identifier, table: CatalogTable) -> str:
    """``CREATE TABLE`` of a table; secrets among its options are stars."""
    parts = [_column_text(column) for column in table.columns]
    if table.watermark is not None:
        parts.append(f"WATERMARK FOR {_name(table.watermark.column)} AS ...")
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({', '.join(map(_name, table.primary_key))}) NOT ENFORCED")
    lines = [f"CREATE TABLE {_name(*identifier)} (\n  " + ",\n  ".join(parts) + "\n)"]
    if table.comment is not None:
        lines.append(f"COMMENT {_text(table.comment)}")
    if table.partitioned_by:
        lines.append(f"PARTITIONED BY ({', '.join(map(_name, table.partitioned_by))})")
    options = [f"{_text(key)} = {_text(_masked(key, value))}" for key, value in table.options.items()]
    lines.append("WITH (\n  " + ",\n  ".join(options) + "\n)")
    return "\n".join(lines)


def _column_text(column: TableColumn) -> str:
    text = _name(column.name)
    if column.computed is not None:
        return f"{text} AS ..."
    assert column.type is not None
    text += f" {type_text(column.type)}"
    if column.metadata_key is not None:
        text += f" METADATA FROM {_text(column.metadata_key)}" + (" VIRTUAL" if column.is_virtual else "")
    return text if column.comment is None else f"{text} COMMENT {_text(column.comment)}"


def _masked(key: str, value: str) -> str:
    return "******" if any(word in key.lower() for word in _SECRET) else value


def create_view_text(identifier: Identifier, view: CatalogView) -> str:
    """``CREATE VIEW`` of a view."""
    columns = f" ({', '.join(map(_name, view.columns))})" if view.columns else ""
    return f"CREATE VIEW {_name(*identifier)}{columns} AS\n{view.text}"
