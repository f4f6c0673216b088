"""``'connector' = 'print'`` and ``'connector' = 'blackhole'``: sinks for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.datastream import DataStream, SinkFunction
from firesteel_sql.connectors.changelog import ChangelogMode
from firesteel_sql.connectors.connector import TableConnector, TableContext
from firesteel_sql.texts import row_text


class PrintConnector(TableConnector):
    """Prints rows to stdout, as ``+I[1, a]``."""

    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return changes

    def write(self, stream: DataStream, context: TableContext) -> None:
        identifier = context.options.text("print-identifier")
        context.options.refuse_unknown()
        types = [column.type for column in context.physical]
        stream.map(_RowText(tuple(types))).print(identifier)


@dataclass(frozen=True)
class _RowText:
    types: tuple[Any, ...]

    def __call__(self, row: Any) -> str:
        return row_text(row, self.types)


class BlackholeConnector(TableConnector):
    """Takes rows and forgets them."""

    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return changes

    def write(self, stream: DataStream, context: TableContext) -> None:
        context.options.refuse_unknown()
        stream.add_sink(_Nothing())


class _Nothing(SinkFunction[Any]):
    """A sink that does nothing."""

    takes_changes = True

    def invoke(self, value: Any, context: Any = None) -> None:
        pass
