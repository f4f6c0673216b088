"""Tests a sink against the sink contract (``firesteel.functions.sink``)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from firesteel.functions.sink import Sink, SinkWriter
from firesteel.testing.rules import require
from firesteel.testing.writing import Context, require_equal


def check_sink(
    make_sink: Callable[[], Sink[Any]],
    records: Sequence[Any],
    visible: Callable[[], Iterable[Any]],
    *,
    parallelism: int = 2,
) -> None:
    """Write, finish, commit and abort; compare the visible records after each step.

    Args:
        make_sink: makes a sink to a place that is empty at first, the same place each time.
        records: records to write, spread over the subtasks.
        visible: returns the records that a reader of that place sees, in the form of ``records``, in any order.
        parallelism: number of writers.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    pickle.loads(pickle.dumps(make_sink()))
    require(list(visible()) == [], "the place is not empty before the first record")
    _abort(make_sink(), records, visible, parallelism, finish=False)
    _abort(make_sink(), records, visible, parallelism, finish=True)
    sink = make_sink()
    sink.check()
    writers = _write(sink, records, parallelism)
    prepared = [writer.finish() for writer, _ in writers]
    require(list(visible()) == [], "records are visible before commit()")
    for subtask, ((writer, context), committables) in enumerate(zip(writers, prepared, strict=True)):
        plain = json.loads(json.dumps(committables))
        require(plain == committables, f"committables are not plain data: {committables!r}")
        if subtask % 2 == 0:  # else its slot has died with it
            writer.commit(plain)
            writer.commit(plain)
        another = make_sink().create_writer(Context(subtask, parallelism))
        another.open()
        another.commit(plain)
        another.commit(plain)
        another.close()
        if subtask % 2:
            continue
        require(not context.temporary, f"temporary files are still registered after commit(): {context.temporary}")
        writer.close()
    require_equal(visible(), records)


def _abort(
    sink: Sink[Any], records: Sequence[Any], visible: Callable[[], Iterable[Any]], parallelism: int, *, finish: bool
) -> None:
    when = "after finish()" if finish else "before finish()"
    for writer, context in _write(sink, records, parallelism):
        if finish:
            writer.finish()
        writer.abort()
        writer.abort()
        writer.close()
        require(not context.temporary, f"temporary files are still registered after abort() {when}")
    require(list(visible()) == [], f"records are visible after abort() {when}")


def _write(sink: Sink[Any], records: Sequence[Any], parallelism: int) -> list[tuple[SinkWriter[Any], Context]]:
    writers = []
    for subtask in range(parallelism):
        context = Context(subtask, parallelism)
        writer = sink.create_writer(context)
        writer.open()
        share = list(records[subtask::parallelism])
        for start in range(0, len(share), 3):
            writer.write(share[start : start + 3], None)
        writers.append((writer, context))
    return writers
