"""A source and a sink of one's own: files of a folder, found and read by a source, end in a table of SQLite.

The source's splits are plain data (a file and how far it was read), so that it continues where it was. The sink writes
into a database of each subtask's own at first; at the end of the input the rows become visible in the table together,
and a job that fails leaves none.

Run it with ``python examples/custom_source_and_sink.py DATABASE [FOLDER]``.
"""

from __future__ import annotations

import sqlite3
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firesteel.common import WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.base import (
    Boundedness,
    Chunk,
    EnumeratorSpec,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    Split,
    SplitCursor,
    SplitQueueReader,
    WriterContext,
)

Line = tuple[str, int, str]


class LinesOfFolder(Source[Line]):
    """File, number and text of each line of the Python files of a folder; a split is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def enumerator(self) -> EnumeratorSpec:
        splits = [Split(path.name, {"path": str(path)}).to_plain() for path in sorted(Path(self.folder).glob("*.py"))]
        return EnumeratorSpec("static", {"splits": splits})

    def create_reader(self, context: ReaderContext) -> SplitQueueReader[Line]:
        return FileReader()


class FileReader(SplitQueueReader[Line]):
    """Opens files; the queue of splits is the base class's business."""

    def open_split(self, split: Split) -> SplitCursor[Line]:
        return FileCursor(split)


class FileCursor(SplitCursor[Line]):
    """The position is the number of lines that were read."""

    def __init__(self, split: Split) -> None:
        self.name = split.id
        self.lines = Path(str(split.data["path"])).read_text(encoding="utf-8", errors="replace").splitlines()
        self.read_so_far = int(str(split.position or 0))

    def read(self, max_records: int) -> Chunk[Line]:
        first, last = self.read_so_far, min(len(self.lines), self.read_so_far + max_records)
        self.read_so_far = last
        values = [(self.name, number + 1, self.lines[number]) for number in range(first, last)]
        return Chunk(values, last, last == len(self.lines))


class SqliteSink(Sink[tuple[str, int]]):
    """Rows of the table ``longest``."""

    def __init__(self, database: Path) -> None:
        self.database = str(database)

    def create_writer(self, context: WriterContext) -> SinkWriter[tuple[str, int]]:
        return SqliteWriter(Path(self.database), context)


class SqliteWriter(SinkWriter[tuple[str, int]]):
    """Collects rows, and inserts them in one transaction when all subtasks have got that far."""

    blocking = True

    def __init__(self, database: Path, context: WriterContext) -> None:
        self.database = database
        self.subtask = context.subtask_index
        self.rows: list[tuple[str, int]] = []

    def write(self, values: Sequence[tuple[str, int]], timestamps: Sequence[int] | None) -> None:
        self.rows += values

    def finish(self) -> list[Any]:
        return [[list(row) for row in self.rows]]

    def commit(self, committables: Sequence[Any]) -> None:
        with sqlite3.connect(self.database, timeout=60) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS longest (file TEXT PRIMARY KEY, characters INTEGER)")
            for rows in committables:
                connection.executemany("INSERT OR REPLACE INTO longest VALUES (?, ?)", rows)
        connection.close()

    def abort(self) -> None:
        self.rows.clear()


def main(database: Path, folder: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = env.from_source(LinesOfFolder(folder), WatermarkStrategy.no_watermarks(), "lines")
    longest = (
        lines.map(lambda line: (line[0], len(line[2]))).key_by(lambda pair: pair[0]).reduce(lambda a, b: max(a, b))
    )
    longest.sink_to(SqliteSink(database))
    env.execute("Longest lines")
    with sqlite3.connect(database) as connection:
        for file, characters in connection.execute("SELECT * FROM longest ORDER BY characters DESC, file LIMIT 5"):
            print(f"{characters:>5} {file}")
    connection.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("say into which database to write: custom_source_and_sink.py DATABASE [FOLDER]")
    main(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else Path(sysconfig.get_paths()["stdlib"], "json")))
