"""The settings ``state.backend.rocksdb.*``, and the memory that all databases of a process share."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Env, Options, WriteBufferManager

from firesteel.config import Settings, options

logger = logging.getLogger(__name__)

UNSAID: Final = 128 << 20
"""Bytes of memory where the managed memory of a slot is not configured."""
_OBJECTS: Final = 0.5
"""Share of the memory for objects in front of the databases; the others are blocks and write buffers."""
_LEAST_BLOCKS: Final = 1 << 20
_BUFFERS_AT_LEAST: Final = 4
"""Write buffers that fit into their share of the memory."""
_SMALLEST_BUFFER: Final = 64 << 10
_FILTER_SHARE: Final = 0.1
"""Share of a write buffer for its filter."""


@dataclass(frozen=True)
class RocksDBSettings:
    """Settings of a job; attributes are named after their options, ``metrics`` and ``statistics`` list those shown."""

    managed: bool = options.ROCKSDB_MEMORY_MANAGED.default
    fixed_per_slot: int | None = options.ROCKSDB_MEMORY_FIXED.default
    write_buffer_ratio: float = options.ROCKSDB_WRITE_BUFFER_RATIO.default
    block_cache: int = options.ROCKSDB_BLOCK_CACHE.default
    block_size: int = options.ROCKSDB_BLOCK_SIZE.default
    write_buffer: int = options.ROCKSDB_WRITE_BUFFER.default
    write_buffers: int = options.ROCKSDB_WRITE_BUFFERS.default
    bloom: bool = options.ROCKSDB_BLOOM.default
    bloom_bits: float = options.ROCKSDB_BLOOM_BITS.default
    compression: str = options.ROCKSDB_COMPRESSION.default
    level_base: int = options.ROCKSDB_LEVEL_BASE.default
    file_size: int = options.ROCKSDB_FILE_SIZE.default
    dynamic_levels: bool = options.ROCKSDB_DYNAMIC_LEVELS.default
    threads: int = options.ROCKSDB_THREADS.default
    open_files: int = options.ROCKSDB_OPEN_FILES.default
    timers_on_disk: bool = options.ROCKSDB_TIMERS.default == "ROCKSDB"
    directories: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    family_as_variable: bool = False

    @classmethod
    def read(cls, settings: Settings) -> RocksDBSettings:
        """Read the settings of a job, over those of the cluster.

        Raises:
            ConfigurationError: a value is not valid.
        """
        directories = settings.get(options.ROCKSDB_LOCAL_DIRECTORIES) or ""
        return cls(
            settings.get(options.ROCKSDB_MEMORY_MANAGED),
            settings.get(options.ROCKSDB_MEMORY_FIXED),
            settings.get(options.ROCKSDB_WRITE_BUFFER_RATIO),
            settings.get(options.ROCKSDB_BLOCK_CACHE),
            settings.get(options.ROCKSDB_BLOCK_SIZE),
            settings.get(options.ROCKSDB_WRITE_BUFFER),
            settings.get(options.ROCKSDB_WRITE_BUFFERS),
            settings.get(options.ROCKSDB_BLOOM),
            settings.get(options.ROCKSDB_BLOOM_BITS),
            settings.get(options.ROCKSDB_COMPRESSION),
            settings.get(options.ROCKSDB_LEVEL_BASE),
            settings.get(options.ROCKSDB_FILE_SIZE),
            settings.get(options.ROCKSDB_DYNAMIC_LEVELS),
            settings.get(options.ROCKSDB_THREADS),
            settings.get(options.ROCKSDB_OPEN_FILES),
            settings.get(options.ROCKSDB_TIMERS) == "ROCKSDB",
            tuple(path for path in map(str.strip, directories.split(",")) if path),
            tuple(name for name, option in options.ROCKSDB_METRICS.items() if settings.get(option)),
            tuple(name for name, option in options.ROCKSDB_STATISTICS.items() if settings.get(option)),
            settings.get(options.ROCKSDB_METRICS_BY_VARIABLE),
        )


class ObjectMemory:
    """Memory for objects in front of the databases, divided equally among all users of it.

    Args:
        total: bytes.

    Attributes:
        shares: number of users: tables, and states in columns.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.shares = 0
        self._lock = threading.Lock()

    def join(self, count: int = 1) -> None:
        """Add users; a negative number removes some."""
        with self._lock:
            self.shares += count

    @property
    def share(self) -> int:
        """Bytes for each user."""
        return self.total // max(1, self.shares)


class Memory(NamedTuple):
    """Memory of all databases of a slot.

    Attributes:
        objects: for objects in front of all databases.
        write_buffer: bytes of one write buffer.
        cache: of blocks.
        buffers: limits all write buffers together; None = every database has its own limit.
    """

    objects: ObjectMemory
    write_buffer: int
    cache: Cache
    buffers: WriteBufferManager | None


_shared: dict[tuple[RocksDBSettings, int], Memory] = {}
_sharing = threading.Lock()


def memory_of(settings: RocksDBSettings, managed: int) -> Memory:
    """Memory of this process: one budget for all databases, whichever operator they belong to.

    Args:
        settings: of the job.
        managed: managed memory of the slot in bytes; 0 = not configured.
    """
    with _sharing:
        key = settings, managed
        if key not in _shared:
            _shared[key] = _divided(settings, managed)
        return _shared[key]


def _divided(settings: RocksDBSettings, managed: int) -> Memory:
    total = settings.fixed_per_slot or managed or UNSAID
    if not settings.managed and settings.fixed_per_slot is None:
        return Memory(ObjectMemory(int(total * _OBJECTS)), settings.write_buffer, Cache(settings.block_cache), None)
    objects = int(total * _OBJECTS)
    for_buffers = max(int((total - objects) * settings.write_buffer_ratio), _SMALLEST_BUFFER * _BUFFERS_AT_LEAST)
    blocks = max(total - objects - for_buffers, min(_LEAST_BLOCKS, total))
    write_buffer = max(min(settings.write_buffer, for_buffers // _BUFFERS_AT_LEAST), _SMALLEST_BUFFER)
    return Memory(ObjectMemory(objects), write_buffer, Cache(blocks), WriteBufferManager(for_buffers, False))


def database_options(settings: RocksDBSettings, memory: Memory) -> Options:
    """Options of a database: keys and values are bytes, and there is no write-ahead log."""
    database = Options(raw_mode=True)
    database.create_if_missing(True)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(memory.cache)
    blocks.set_block_size(settings.block_size)
    blocks.set_format_version(5)
    # Index and filters stay outside the cache: a filter is larger than one shard of a small cache.
    if settings.bloom:
        blocks.set_bloom_filter(round(settings.bloom_bits), False)
    database.set_block_based_table_factory(blocks)
    if memory.buffers is not None:
        database.set_write_buffer_manager(memory.buffers)
    database.set_write_buffer_size(memory.write_buffer)
    database.set_max_write_buffer_number(settings.write_buffers)
    # A look-up of a key that only the files have skips the lists of the write buffers.
    database.set_memtable_whole_key_filtering(True)
    database.set_memtable_prefix_bloom_ratio(_FILTER_SHARE)
    database.set_compression_type(_codec(settings.compression))
    database.set_max_bytes_for_level_base(settings.level_base)
    database.set_target_file_size_base(settings.file_size)
    database.set_level_compaction_dynamic_level_bytes(settings.dynamic_levels)
    database.set_max_background_jobs(settings.threads)
    database.set_max_open_files(settings.open_files)
    database.set_keep_log_file_num(1)
    database.set_max_log_file_size(1 << 20)
    database.set_stats_dump_period_sec(0)
    database.set_stats_persist_period_sec(0)
    database.set_paranoid_checks(True)
    if settings.statistics:
        database.enable_statistics()
    environment = Env()
    environment.lower_thread_pool_cpu_priority()
    database.set_env(environment)
    return database


def _codec(name: str) -> Any:
    codecs = {
        "NO_COMPRESSION": DBCompressionType.none,
        "SNAPPY_COMPRESSION": DBCompressionType.snappy,
        "ZLIB_COMPRESSION": DBCompressionType.zlib,
        "BZLIB2_COMPRESSION": DBCompressionType.bz2,
        "LZ4_COMPRESSION": DBCompressionType.lz4,
        "LZ4HC_COMPRESSION": DBCompressionType.lz4hc,
        "ZSTD_COMPRESSION": DBCompressionType.zstd,
    }
    return codecs[name]()
