"""A job of plug-ins from outside the tree; ``test_foreign_plugins.py`` runs it in a process of its own.

Its arguments are a folder, the number of records, and the names of a state backend and a checkpoint storage. It needs
the distributions of the pages "Write your own" on its path, and nothing of the tests.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from http_source import HttpSource  # type: ignore[import-not-found]
from sqlite_sink import SqliteSink  # type: ignore[import-not-found]

from firesteel.checkpoint.storage import StorageParameters, load_checkpoint_storage
from firesteel.common import Configuration, Types, WatermarkStrategy
from firesteel.common.serialization import Encoder
from firesteel.config import Settings
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.file_system import FileSink
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.state.backend import load_state_backend
from firesteel.testing import check_checkpoint_storage, check_state_backend

KEYS = 7
PAUSE = 0.05
"""Seconds for each answer of the service, until a checkpoint is complete and the job has failed once."""


class Totals(KeyedProcessFunction[Any, Any, Any]):
    """Running sums by key; fails once, when a checkpoint is complete, so that the sums come out of it."""

    def __init__(self, folder: Path) -> None:
        self.database, self.mark = folder / "checkpoints" / "checkpoints.db", folder / "failed"

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[list[int]]:
        if not self.mark.exists() and self.checkpoints():
            self.mark.touch()
            raise RuntimeError("once, behind a checkpoint")
        total = (self.total.value() or 0) + value["amount"]
        self.total.update(total)
        yield [value["id"], total]

    def checkpoints(self) -> int:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.database, timeout=30)) as connection:
            ((count,),) = connection.execute("select count(*) from checkpoint where metadata is not null")
            return int(count)
        return 0  # the storage has not been written to


def served(folder: Path, count: int) -> ThreadingHTTPServer:
    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: int(values[0]) for name, values in parse_qs(url.query).items()}
            answer: Any = count
            if url.path == "/records":
                answer = [{"id": number, "amount": number + 1} for number in range(query["from"], query["to"])]
                time.sleep(0 if (folder / "failed").exists() else PAUSE)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(folder: Path, count: int, backend: str, storage: str) -> None:
    """Run the job, then the kits of what it found by name."""
    options = {
        "state.backend.type": backend,
        "execution.checkpointing.storage": storage,
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    server = served(folder, count)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    source = HttpSource(f"http://127.0.0.1:{server.server_port}", 5)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records")
    totals = records.key_by(lambda record: record["id"] % KEYS).process(Totals(folder))
    totals.sink_to(SqliteSink(str(folder / "totals.db")))
    lines = totals.map(lambda pair: str(pair[0]), output_type=Types.STRING())
    lines.sink_to(
        FileSink.for_row_format(f"sqlar://{folder}/totals.sqlar/out", Encoder.simple_string_encoder()).build()
    )
    env.execute("of plug-ins from outside")
    server.shutdown()
    server.server_close()

    check_state_backend(load_state_backend(backend), seeds=())
    settings = Settings(options | {"execution.checkpointing.dir": str(folder / "kit")})
    check_checkpoint_storage(lambda: load_checkpoint_storage(StorageParameters("a" * 32, settings)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
