"""What the profile "full" of docker-compose.yml needs before the services start: a bucket, and settings for them."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from minio import Minio
from minio.error import S3Error

BUCKET = "checkpoints"
SETTINGS = Path("/var/lib/firesteel-secret/full.env")
PATIENCE = 120.0


def settings(endpoint: str, user: str, password: str) -> dict[str, str]:
    """Options of the services; the reporters are described in config.yaml."""
    return {
        "metrics.reporters": "prom;otel",
        "traces.reporters": "otel",
        "firesteel.logs.reporters": "otel",
        "execution.checkpointing.dir": f"s3://{BUCKET}/firesteel",
        "jobmanager.archive.fs.dir": f"s3://{BUCKET}/archives",
        "s3.endpoint": endpoint,
        "s3.access-key": user,
        "s3.secret-key": password,
    }


def script(options: Mapping[str, str]) -> str:
    """For the shell; variables that a container has already win."""
    lines = []
    for key, value in options.items():
        name = "FIRESTEEL_OPTION_" + re.sub(r"[^A-Z0-9]", "_", key.upper())
        lines.append(f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}\n')
    return "".join(lines)


def wait_for(url: str) -> None:
    """Until a server answers.

    Raises:
        TimeoutError: it does not.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} does not answer: {error}") from error
        time.sleep(0.2)


def main() -> int:
    """Do it; returns the exit code."""
    endpoint, user, password = (os.environ[name] for name in ("MINIO_ENDPOINT", "MINIO_USER", "MINIO_PASSWORD"))
    try:
        wait_for(f"{endpoint}/minio/health/ready")
        client = Minio(endpoint.removeprefix("http://"), user, password, secure=False, region="us-east-1")
        if not client.bucket_exists(BUCKET):
            client.make_bucket(BUCKET)
    except (OSError, S3Error) as error:
        print(f"the bucket {BUCKET} can't be made: {error}", file=sys.stderr)
        return 1
    SETTINGS.touch(mode=0o600)
    SETTINGS.write_text(script(settings(endpoint, user, password)))
    print(f"the bucket {BUCKET} is there: for checkpoints and archives; metrics, traces and logs go to the collector")
    return 0


if __name__ == "__main__":
    sys.exit(main())
