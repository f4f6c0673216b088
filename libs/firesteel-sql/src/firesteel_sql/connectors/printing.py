"""``'connector' = 'print'`` and ``'connector' = 'blackhole'``: sinks for trying things out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from firesteel.config.option import STRING, Option
from firesteel.datastream import DataStream
from firesteel.functions.sink import Sink, SinkWriter, WriterContext
from firesteel_sql.connectors.changelog import ChangelogMode
from firesteel_sql.connectors.connector import SINK_PARALLELISM, TableConnector, TableContext, in_parallel
from firesteel_sql.texts import row_text

IDENTIFIER: Final[Option[str | None]] = Option(
    "print-identifier", STRING, None, "Stands in front of each row, to tell tables apart."
)


class PrintConnector(TableConnector):
    """Prints rows to the stdout of TaskManagers, as ``+I[1, a]``."""

    OPTIONS = (IDENTIFIER, SINK_PARALLELISM)

    def sink_mode(self, context: TableContext, changes: ChangelogMode) -> ChangelogMode:
        return changes

    def write(self, stream: DataStream, context: TableContext) -> None:
        types = [column.type for column in context.physical]
        texts = in_parallel(stream.map(_RowText(tuple(types))), context, SINK_PARALLELISM)
        in_parallel(texts.print(context.options.get(IDENTIFIER)), context, SINK_PARALLELISM)


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
        stream.sink_to(_Nothing())


class _Nothing(Sink[Any]):
    takes_changes = True

    @override
    def create_writer(self, context: WriterContext) -> SinkWriter[Any]:
        return _ForgettingWriter()


class _ForgettingWriter(SinkWriter[Any]):
    takes_columns = True

    @override
    def write(self, values: Sequence[Any], timestamps: Sequence[int] | None) -> None: ...

    @override
    def write_columns(self, batch: Any, timestamps: Any) -> None: ...

    @override
    def write_changes(self, batch: Any, kinds: Any, timestamps: Any) -> None: ...
