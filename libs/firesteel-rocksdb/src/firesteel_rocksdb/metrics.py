"""Metrics of a database, under Flink's names, in the group of its operator."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from firesteel.functions.metrics import MetricGroup
from firesteel_rocksdb.settings import RocksDBSettings

_FAMILY: Final = "default"
_LEVELS: Final = 7
_STALE: Final = 5.0
"""Seconds after which the statistics are read again, which takes some 20 ms."""
_TICKERS: Final = {
    "block-cache-hit": "rocksdb.block.cache.hit",
    "block-cache-miss": "rocksdb.block.cache.miss",
    "bloom-filter-full-positive": "rocksdb.bloom.filter.full.positive",
    "bloom-filter-full-true-positive": "rocksdb.bloom.filter.full.true.positive",
    "bloom-filter-useful": "rocksdb.bloom.filter.useful",
    "bytes-read": "rocksdb.bytes.read",
    "bytes-written": "rocksdb.bytes.written",
    "compaction-read-bytes": "rocksdb.compact.read.bytes",
    "compaction-write-bytes": "rocksdb.compact.write.bytes",
    "iter-bytes-read": "rocksdb.db.iter.bytes.read",
    "stall-micros": "rocksdb.stall.micros",
}
_LINE: Final = re.compile(r"^(\S+) COUNT : (\d+)$", re.MULTILINE)
Property = Callable[[str], Any]


def show(group: MetricGroup, settings: RocksDBSettings, read: Property) -> None:
    """Register the metrics that the settings ask for.

    Args:
        group: of the operator.
        settings: of the job.
        read: returns a property of the database; None while there is no database.
    """
    if not settings.metrics and not settings.statistics:
        return
    if settings.family_as_variable:
        group = group.add_group("column_family", _FAMILY)
    else:
        group = group.add_group(_FAMILY)
    group = group.add_group("rocksdb")  # Flink's names have it in front
    for name in settings.metrics:
        if name == "num-files-at-level":
            for level in range(_LEVELS):
                group.gauge(f"{name}{level}", partial(_number, read, f"rocksdb.{name}{level}"))
        else:
            group.gauge(name, partial(_number, read, f"rocksdb.{name}"))
    if settings.statistics:
        counted = _Statistics(read)
        for name in settings.statistics:
            group.gauge(name.replace("-", "_"), partial(counted.count, _TICKERS[name]))


def _number(read: Property, name: str) -> int:
    return int(read(name) or 0)


class _Statistics:
    """Counters of a database, read all at once."""

    def __init__(self, read: Property) -> None:
        self._read = read
        self._counters: dict[str, int] = {}
        self._read_at = float("-inf")  # monotonic seconds

    def count(self, ticker: str) -> int:
        """Value of one counter."""
        now = time.monotonic()
        if now - self._read_at > _STALE:
            self._read_at = now
            text = self._read("rocksdb.options-statistics") or ""
            self._counters = {name: int(count) for name, count in _LINE.findall(text)} or self._counters
        return self._counters.get(ticker, 0)
