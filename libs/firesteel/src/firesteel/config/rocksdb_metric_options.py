"""Which metrics of RocksDB are shown; none is unless it is asked for, as in Flink."""

from __future__ import annotations

from typing import Final

from firesteel.config.option import BOOL, Option

__all__ = ["ROCKSDB_METRICS", "ROCKSDB_METRICS_BY_VARIABLE", "ROCKSDB_STATISTICS"]

_PREFIX: Final = "state.backend.rocksdb.metrics."
ROCKSDB_METRICS_BY_VARIABLE = Option(
    f"{_PREFIX}column-family-as-variable",
    BOOL,
    False,
    "The column family is a variable of the metrics of RocksDB, instead of a part of their names. There is one for "
    "each operator, default.",
)
_PROPERTIES: Final = {
    "actual-delayed-write-rate": "the rate to which writes are held back, 0 = they are not",
    "background-errors": "errors of compactions and flushes",
    "block-cache-capacity": "size of the cache of blocks, which databases of a slot share",
    "block-cache-pinned-usage": "bytes in the cache of blocks that are in use",
    "block-cache-usage": "bytes in the cache of blocks",
    "compaction-pending": "1 if a compaction is due",
    "cur-size-active-mem-table": "bytes of the write buffer in use",
    "cur-size-all-mem-tables": "bytes of write buffers that are not on disk",
    "estimate-live-data-size": "about so many bytes are no old versions",
    "estimate-num-keys": "about so many keys",
    "estimate-pending-compaction-bytes": "about so many bytes a compaction has to rewrite",
    "estimate-table-readers-mem": "about so many bytes of index and filters are in memory",
    "is-write-stopped": "1 if writes wait",
    "live-sst-files-size": "bytes of the files of now",
    "mem-table-flush-pending": "1 if a flush is due",
    "num-deletes-active-mem-table": "removals in the write buffer in use",
    "num-deletes-imm-mem-tables": "removals in full write buffers",
    "num-entries-active-mem-table": "entries of the write buffer in use",
    "num-entries-imm-mem-tables": "entries of full write buffers",
    "num-files-at-level": "files of each level",
    "num-immutable-mem-table": "full write buffers",
    "num-live-versions": "versions of the set of files that are in use",
    "num-running-compactions": "compactions that run",
    "num-running-flushes": "flushes that run",
    "num-snapshots": "snapshots that are in use",
    "size-all-mem-tables": "bytes of all write buffers, with those that are read still",
    "total-sst-files-size": "bytes of all files, old ones that are in use as well",
}
_STATISTICS: Final = {
    "block-cache-hit": "blocks that were found in the cache",
    "block-cache-miss": "blocks that were not",
    "bloom-filter-full-positive": "times that a filter did not rule a file out",
    "bloom-filter-full-true-positive": "times that it was right in that",
    "bloom-filter-useful": "files that a filter has spared reading",
    "bytes-read": "bytes that were read by key",
    "bytes-written": "bytes that were written",
    "compaction-read-bytes": "bytes that compactions have read",
    "compaction-write-bytes": "bytes that they have written",
    "iter-bytes-read": "bytes that were read in order",
    "stall-micros": "microseconds that writes have waited",
}
_COUNTED: Final = "; counts take time with each access, and some 20 ms of the process every five seconds"


def _option(name: str, doc: str) -> Option[bool]:
    return Option(f"{_PREFIX}{name}", BOOL, False, f"A metric of RocksDB: {doc}.")


ROCKSDB_METRICS: Final = {name: _option(name, doc) for name, doc in _PROPERTIES.items()}
"""Properties of a database, by name."""
ROCKSDB_STATISTICS: Final = {name: _option(name, doc + _COUNTED) for name, doc in _STATISTICS.items()}
"""Counters of a database, by name."""
