"""The file with the credentials of a container, which YARN puts there: here, the secrets in it.

Source of the format: Hadoop's ``Credentials.readTokenStorageStream`` and ``WritableUtils.readVLong`` (3.5.0): ``HDTS``,
a byte for the version (0: writable), tokens, secrets; lengths are variable-length numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Final

from firesteel.core.errors import ConfigurationError

LOCATION: Final = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable in which YARN names the file."""
SECRET: Final = "firesteel.cluster.secret"
"""Under which the cluster's secret travels."""
_MAGIC: Final = b"HDTS\0"


def secret_of_container(environ: Mapping[str, str]) -> str:
    """The cluster's secret, from the credentials of the container that this process runs in.

    Raises:
        ConfigurationError: this is no container of ours.
    """
    where = environ.get(LOCATION)
    if not where:
        raise ConfigurationError(f"this is no container of YARN: the variable {LOCATION} is not set")
    try:
        found = read_secrets(Path(where).read_bytes()).get(SECRET)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the container's credentials in {where} can't be read: {error}") from error
    if found is None:
        raise ConfigurationError(f"the container's credentials in {where} have no secret of a cluster")
    return found.decode()


def read_secrets(content: bytes) -> dict[str, bytes]:
    """The secrets in such a file, by their names.

    Raises:
        ValueError: it is none, or of another version.
    """
    if not content.startswith(_MAGIC):
        raise ValueError("it is no file of tokens that this version can read")
    stream = BytesIO(content[len(_MAGIC) :])
    for _ in range(_number(stream)):
        for _part in range(5):  # alias; identifier, password, kind, service
            _bytes(stream)
    return {_bytes(stream).decode(): _bytes(stream) for _ in range(_number(stream))}


def _bytes(stream: BytesIO) -> bytes:
    size = _number(stream)
    found = stream.read(size)
    if size < 0 or len(found) < size:
        raise ValueError("it ends too early")
    return found


def _number(stream: BytesIO) -> int:
    """A variable-length number: itself from -112 to 127, else how many bytes follow."""
    first = stream.read(1)
    if not first:
        raise ValueError("it ends too early")
    value = int.from_bytes(first, signed=True)
    if value >= -112:
        return value
    negative = value < -120
    size = -120 - value if negative else -112 - value
    found = int.from_bytes(stream.read(size))
    return ~found if negative else found


def keep_secret(environ: Mapping[str, str], folder: Path, name: str) -> None:
    """Write the cluster's secret into a file that only this user can read.

    Raises:
        ConfigurationError: there is none.
        OSError: it can't be written.
    """
    path = folder / name
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(secret_of_container(environ))
