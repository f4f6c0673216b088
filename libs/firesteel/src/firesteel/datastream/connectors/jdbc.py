"""Tables of databases as source and sink; drivers come with the extras ``adbc`` and ``duckdb`` of firesteel."""

from __future__ import annotations

from firesteel.connectors.jdbc.options import JdbcConnectionOptions, JdbcExactlyOnceOptions, JdbcExecutionOptions
from firesteel.connectors.jdbc.sink import JdbcSink
from firesteel.connectors.jdbc.source import (
    JdbcGenericParameterValuesProvider,
    JdbcNumericBetweenParametersProvider,
    JdbcSource,
    JdbcSourceBuilder,
)

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExactlyOnceOptions",
    "JdbcExecutionOptions",
    "JdbcGenericParameterValuesProvider",
    "JdbcNumericBetweenParametersProvider",
    "JdbcSink",
    "JdbcSource",
    "JdbcSourceBuilder",
]
