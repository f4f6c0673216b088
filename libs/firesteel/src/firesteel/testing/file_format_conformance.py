"""Tests a file format against its contract (``firesteel.connectors.file_format``)."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firesteel.connectors.file_format import FileFormat
from firesteel.connectors.file_source import FileSource
from firesteel.connectors.malformed import MalformedPolicy, MalformedRecord, MalformedRecords
from firesteel.core.errors import MalformedDataError
from firesteel.expressions.values import records_of
from firesteel.functions.source import Split, Wait
from firesteel.testing.rules import require
from firesteel.testing.source_conformance import check_source
from firesteel.testing.writing import require_equal

_LONGEST: Final = 100_000
"""Number of reads without an end after which a cursor counts as hanging."""
_CUTS: Final = 40
"""Largest number of positions, spread over a file, at which it is cut into two ranges."""


def check_file_format(
    make_format: Callable[[], FileFormat],
    content: bytes,
    expected: Iterable[Any],
    *,
    name: str = "records",
    damaged: bytes | None = None,
) -> None:
    """Read a file whole, in ranges, and resumed from every position; then a damaged file under each policy.

    Args:
        make_format: makes the format; called often.
        content: bytes of a file with at least three records.
        expected: all records of that file, in order.
        name: name of the file, for formats that depend on its ending.
        damaged: bytes of a file with data that can't be read; None = this format has no malformed data.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    records = list(expected)
    require(len(records) >= 3, "the kit needs a file of at least three records")
    pickle.loads(pickle.dumps(make_format()))
    make_format().check()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        whole = _Range(make_format, path)
        _require_in_order(whole.read(), records, "of the whole file, read in one range")
        _check_positions(whole, records)
        if make_format().splittable:
            _check_ranges(make_format, path, records)
        split_bytes = max(1, len(content) // 3) if make_format().splittable else 0
        check_source(lambda: FileSource((str(path),), make_format(), split_bytes), records, batch_sizes=(1, 7))
        if damaged is not None:
            path.write_bytes(damaged)
            _check_damaged(make_format, path)


def _require_in_order(read: Sequence[Any], records: Sequence[Any], source: str) -> None:
    """Check that records are the expected ones; the error names the first that differs."""
    for number, (record, expected) in enumerate(zip(read, records, strict=False)):
        require(record == expected, f"record {number} {source} is {record!r} instead of {expected!r}")
    require(len(read) == len(records), f"{len(read)} records {source} instead of {len(records)}")


class _Range:
    """A range of a file, which is read by cursors of its own."""

    def __init__(
        self,
        make_format: Callable[[], FileFormat],
        path: Path,
        start: int = 0,
        end: int | None = None,
        policy: MalformedPolicy = MalformedPolicy.FAIL,
    ) -> None:
        self._make_format = make_format
        data = {"path": str(path), "start": start, "end": path.stat().st_size if end is None else end}
        self._split = Split("split", data)
        self.malformed = MalformedRecords(policy)
        self.positions: list[tuple[Any, int]] = []
        """Positions that the last ``read`` returned, each with the number of records in front of it."""

    def read(self, most: int = 3, position: Any = None) -> list[Any]:
        """Return all records behind a position (None = the begin of the range)."""
        file_format = self._make_format()
        cursor = file_format.open_cursor(self._split.at(position), self.malformed)
        records: list[Any] = []
        self.positions = []
        try:
            for _ in range(_LONGEST):
                chunk = cursor.read(most)
                if isinstance(chunk, Wait):
                    continue
                columns = isinstance(chunk.values, pa.RecordBatch)
                require(
                    not columns or self.malformed.policy is not MalformedPolicy.EMIT,
                    "read() gives columns under MalformedPolicy.EMIT, where records take the place of what is damaged",
                )
                values = records_of(chunk.values, file_format.produced_type()) if columns else list(chunk.values)
                require(len(values) <= most, f"read({most}) gave {len(values)} records")
                plain = json.loads(json.dumps(chunk.position))
                require(plain == chunk.position, f"position {chunk.position!r} is not plain data")
                records += values
                if chunk.finished:
                    return records
                require(bool(values), "read() gave no record, and neither Wait nor the end")
                self.positions.append((plain, len(records)))
        finally:
            cursor.close()
        raise AssertionError(f"no end after {_LONGEST} calls of read()")


def _check_positions(whole: _Range, records: Sequence[Any]) -> None:
    """Check that reading can resume at each position, because a checkpoint may be taken after any read."""
    for most in (1, 2):
        whole.read(most)
        for position, count in list(whole.positions):
            remaining = whole.read(3, position)
            _require_in_order(remaining, records[count:], f"behind position {position!r}")


def _check_ranges(make_format: Callable[[], FileFormat], path: Path, records: Sequence[Any]) -> None:
    """Check that each record belongs to the range in which it begins, wherever a file is cut."""
    size = path.stat().st_size
    for cut in sorted({size * number // _CUTS for number in range(1, _CUTS)} - {0}):
        first, second = _Range(make_format, path, 0, cut), _Range(make_format, path, cut)
        ranges = f"of two ranges that meet at byte {cut} of {size}"
        _require_in_order([*first.read(), *second.read()], records, ranges)


def _check_damaged(make_format: Callable[[], FileFormat], path: Path) -> None:
    try:
        _Range(make_format, path).read()
    except MalformedDataError as error:
        require(str(path) in str(error), "the error about damaged data does not name the file")
    else:
        raise AssertionError("damaged data do not raise MalformedDataError under MalformedPolicy.FAIL")
    skipping = _Range(make_format, path, policy=MalformedPolicy.SKIP)
    good = skipping.read()
    require(skipping.malformed.count > 0, "damaged data are left out under MalformedPolicy.SKIP, and not counted")
    emitting = _Range(make_format, path, policy=MalformedPolicy.EMIT)
    all_of_them = emitting.read()
    marks = [record for record in all_of_them if isinstance(record, MalformedRecord)]
    require(bool(marks), "no MalformedRecord takes the place of damaged data under MalformedPolicy.EMIT")
    intact = [record for record in all_of_them if not isinstance(record, MalformedRecord)]
    require_equal(intact, good, "under MalformedPolicy.EMIT, but for those that can't be read")
