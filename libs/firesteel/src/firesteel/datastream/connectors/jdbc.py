"""Tables of databases as source and sink; drivers come with the extras ``adbc`` and ``duckdb`` of firesteel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firesteel.core.pyflink_names import reexports

if TYPE_CHECKING:  # types of a plug-in that need not be installed: ``reexports`` imports a name when it is asked for
    from firesteel_jdbc.options import JdbcConnectionOptions, JdbcExactlyOnceOptions, JdbcExecutionOptions
    from firesteel_jdbc.row_lookup import JdbcRowLookup
    from firesteel_jdbc.sink import JdbcSink
    from firesteel_jdbc.source import (
        JdbcGenericParameterValuesProvider,
        JdbcNumericBetweenParametersProvider,
        JdbcSource,
        JdbcSourceBuilder,
    )
    from firesteel_jdbc.table_sink import JdbcTableSink

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExactlyOnceOptions",
    "JdbcExecutionOptions",
    "JdbcGenericParameterValuesProvider",
    "JdbcNumericBetweenParametersProvider",
    "JdbcRowLookup",
    "JdbcSink",
    "JdbcSource",
    "JdbcSourceBuilder",
    "JdbcTableSink",
]

if not TYPE_CHECKING:
    __getattr__ = reexports(__name__)
