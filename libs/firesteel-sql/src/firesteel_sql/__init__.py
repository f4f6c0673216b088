"""Flink's SQL on Firesteel's streams: ``TableEnvironment.create().execute_sql("SELECT ...")``.

Names are loaded when they are used: slots import kernels and operators of this package, and plan nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from firesteel_sql.environment import (
        EnvironmentSettings,
        StreamTableEnvironment,
        Table,
        TableConfig,
        TableEnvironment,
    )
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

_MODULES: Final = {"SqlError": "parse.errors", "TableResult": "execution.results"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'environment')}"), name)
