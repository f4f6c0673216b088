"""Flink's SQL on Firesteel's streams: ``TableEnvironment.create().execute_sql("SELECT ...")``."""

from __future__ import annotations

from firesteel_sql.environment import EnvironmentSettings, StreamTableEnvironment, Table, TableConfig, TableEnvironment
from firesteel_sql.execution.results import TableResult
from firesteel_sql.parse.errors import SqlError

__all__ = [
    "EnvironmentSettings",
    "SqlError",
    "StreamTableEnvironment",
    "Table",
    "TableConfig",
    "TableEnvironment",
    "TableResult",
]
