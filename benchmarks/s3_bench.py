"""``python -m benchmarks.s3_bench``: the checkpoint storage ``s3`` beside the client ``minio`` alone, on one server.

Writes new state in files, as a checkpoint does, and the same bytes with ``put_object`` in the same parts, in turns;
reads them back; and verifies checkpoints of many files. The server and its bucket have to be there::

    python -m benchmarks.s3_bench --endpoint http://127.0.0.1:9000 --bucket checkpoints --access-key … --secret-key …
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

import urllib3
from minio import Minio

from firesteel.checkpoint.handles import FileState, StateHandle
from firesteel.checkpoint.storage import CheckpointStorage, StorageParameters, load_checkpoint_storage
from firesteel.config import Settings

_PIECE: Final = 1 << 20
_WRITERS: Final = 16
_RUN_KEYS: Final = ("written", "alone", "read")


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--access-key", default=os.environ.get("AWS_ACCESS_KEY_ID"))
    parser.add_argument("--secret-key", default=os.environ.get("AWS_SECRET_ACCESS_KEY"))
    parser.add_argument("--megabytes", type=int, default=1024, help="of new state")
    parser.add_argument("--file-megabytes", type=int, default=64, help="of each of its files")
    parser.add_argument("--part-megabytes", type=int, default=8)
    parser.add_argument("--files", type=int, default=10_000, help="to verify")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    settings = {
        "execution.checkpointing.dir": f"s3://{given.bucket}/benchmark",
        "execution.checkpointing.data-inline-threshold": "0",
        "s3.endpoint": given.endpoint,
        "s3.access-key": given.access_key,
        "s3.secret-key": given.secret_key,
        "s3.upload.min.part.size": f"{given.part_megabytes} mb",
    }
    storage = load_checkpoint_storage(StorageParameters(uuid.uuid4().hex, Settings(settings)))
    parts = urlsplit(given.endpoint)
    pool = urllib3.PoolManager(maxsize=_WRITERS, retries=False)
    alone = Minio(
        parts.netloc, given.access_key, given.secret_key, secure=parts.scheme == "https", region="us-east-1",
        http_client=pool,
    )  # fmt: skip
    file = os.urandom(given.file_megabytes << 20)
    count = max(1, given.megabytes // given.file_megabytes)
    figures: dict[str, list[float]] = {key: [] for key in _RUN_KEYS}
    try:
        for run in range(1, given.runs + 1):
            storage.prepare(run)
            handles: list[StateHandle] = []
            took = _timed(lambda run=run, handles=handles: _write(storage, run, file, count, handles))  # type: ignore[misc]
            figures["written"].append(count * len(file) / took / 1e6)
            keys = [f"benchmark/alone-{run}-{number}" for number in range(count)]
            took = _timed(lambda keys=keys: _put_alone(alone, given.bucket, keys, file, given.part_megabytes))  # type: ignore[misc]
            for key in keys:
                alone.remove_object(given.bucket, key)
            figures["alone"].append(count * len(file) / took / 1e6)
            took = _timed(lambda handles=handles: _read(storage, handles))  # type: ignore[misc]
            figures["read"].append(count * len(file) / took / 1e6)
            storage.discard(run)
        many = _small_files(storage, given.files)
        verify = [_timed(lambda: storage.verify(many)) for _ in range(given.runs)]
    finally:
        storage.close_job()
    median = {key: round(statistics.median(values)) for key, values in figures.items()}
    print(
        json.dumps(
            {
                "what": "s3",
                "MB/s": median,
                "share of minio alone": round(median["written"] / median["alone"], 2),
                "verify s": round(statistics.median(verify), 2),
                "files": given.files,
            }
        )
    )


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _write(storage: CheckpointStorage, run: int, file: bytes, count: int, handles: list[StateHandle]) -> None:
    view = memoryview(file)
    for _ in range(count):
        with storage.open_state_stream(run, "benchmark") as stream:
            for start in range(0, len(view), _PIECE):
                stream.write(view[start : start + _PIECE])
            handles.append(stream.close())


def _put_alone(client: Minio, bucket: str, keys: list[str], file: bytes, part_megabytes: int) -> None:
    for key in keys:
        client.put_object(
            bucket, key, io.BytesIO(file), len(file), part_size=part_megabytes << 20, num_parallel_uploads=4
        )


def _read(storage: CheckpointStorage, handles: list[StateHandle]) -> None:
    for handle in handles:
        with storage.open_state(handle) as stream:
            while stream.read(_PIECE):
                pass


def _small_files(storage: CheckpointStorage, count: int) -> list[StateHandle]:
    """Files of a checkpoint that shares them with others."""
    storage.prepare(1000)

    def write(number: int) -> StateHandle:
        stream = storage.open_shared_stream(1000, "benchmark")
        assert stream is not None
        stream.write(b"%d" % number)
        return stream.close()

    with ThreadPoolExecutor(_WRITERS) as threads:
        handles = list(threads.map(write, range(count)))
    assert all(isinstance(handle, FileState) for handle in handles)
    return handles


if __name__ == "__main__":
    main()
