"""``python -m benchmarks.file_systems_bench CLIENT``: processor time of clients of one object store.

CLIENT is ``minio``, ``pyarrow`` or ``s3fs``: which of them the file system ``s3`` stands on was decided by this. It
writes an object in parts of 8 MiB, reads it by ranges, and lists what was put below ``many/`` by the client that ran
first. It prints milliseconds of processor time. ``s3fs`` is no dependency of anything here, and has to be installed.
The server and its bucket have to be there::

    python -m benchmarks.file_systems_bench minio --endpoint http://127.0.0.1:9000 --bucket bench \
        --access-key … --secret-key …
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

from minio import Minio
from minio.datatypes import Part

_PART: Final = 8 << 20
_PARTS: Final = 8
_MEGABYTES: Final = _PARTS * _PART >> 20
_MANY: Final = 5000
_RUNS: Final = 3
Work = Callable[[], Any]


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("client", choices=("minio", "pyarrow", "s3fs"))
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--access-key", default=os.environ.get("AWS_ACCESS_KEY_ID"))
    parser.add_argument("--secret-key", default=os.environ.get("AWS_SECRET_ACCESS_KEY"))
    given = parser.parse_args()
    store = Minio(
        urlsplit(given.endpoint).netloc, given.access_key, given.secret_key,
        secure=given.endpoint.startswith("https"), region="us-east-1",
    )  # fmt: skip
    if next(iter(store.list_objects(given.bucket, "many/", recursive=True)), None) is None:
        with ThreadPoolExecutor(8) as threads:
            list(
                threads.map(
                    lambda n: store.put_object(given.bucket, f"many/{n:05d}", io.BytesIO(b"x"), 1), range(_MANY)
                )
            )
    data = os.urandom(_PART)
    write, read, listing = {"minio": _minio, "pyarrow": _pyarrow, "s3fs": _s3fs}[given.client](given, store, data)
    found: dict[str, Any] = {"client": given.client}
    write()
    for name, work, divisor in (
        ("write_ms_per_mb", write, _MEGABYTES),
        ("read_ms_per_mb", read, _MEGABYTES),
        ("list_ms_per_1000", listing, _MANY / 1000),
    ):
        best = min(_measured(work) for _ in range(_RUNS))
        found[name] = round(best * 1000 / divisor, 3)
    print(json.dumps(found))


def _measured(work: Work) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def _minio(given: Any, store: Minio, data: bytes) -> tuple[Work, Work, Work]:
    def write() -> None:
        upload = store._create_multipart_upload(given.bucket, "minio", {})
        parts = [
            Part(number, store._upload_part(given.bucket, "minio", data, None, upload, number))
            for number in range(1, _PARTS + 1)
        ]
        store._complete_multipart_upload(given.bucket, "minio", upload, parts)

    def read() -> None:
        for number in range(_PARTS):
            answer = store.get_object(given.bucket, "minio", offset=number * _PART, length=_PART)
            assert len(answer.data) == _PART
            answer.close()
            answer.release_conn()

    return write, read, lambda: sum(1 for _ in store.list_objects(given.bucket, "many/", recursive=True))


def _pyarrow(given: Any, store: Minio, data: bytes) -> tuple[Work, Work, Work]:
    fs = importlib.import_module("pyarrow.fs")
    system = fs.S3FileSystem(
        access_key=given.access_key, secret_key=given.secret_key, endpoint_override=given.endpoint, region="us-east-1"
    )

    def write() -> None:
        with system.open_output_stream(f"{given.bucket}/pyarrow") as stream:
            for _ in range(_PARTS):
                stream.write(data)

    def read() -> None:
        with system.open_input_file(f"{given.bucket}/pyarrow") as file:
            for number in range(_PARTS):
                assert len(file.read_at(_PART, number * _PART)) == _PART

    return write, read, lambda: system.get_file_info(fs.FileSelector(f"{given.bucket}/many", recursive=True))


def _s3fs(given: Any, store: Minio, data: bytes) -> tuple[Work, Work, Work]:
    system = importlib.import_module("s3fs").S3FileSystem(
        key=given.access_key, secret=given.secret_key, endpoint_url=given.endpoint
    )

    def write() -> None:
        with system.open(f"{given.bucket}/s3fs", "wb", block_size=_PART) as stream:
            for _ in range(_PARTS):
                stream.write(data)

    def read() -> None:
        for number in range(_PARTS):
            start = number * _PART
            assert len(system.cat_file(f"{given.bucket}/s3fs", start=start, end=start + _PART)) == _PART

    def listing() -> None:
        system.invalidate_cache()
        system.find(f"{given.bucket}/many")

    return write, read, listing


if __name__ == "__main__":
    main()
