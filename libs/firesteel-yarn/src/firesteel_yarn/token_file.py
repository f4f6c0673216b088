"""The file with a container's credentials, which YARN writes; this module reads the secrets in it.

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
"""Variable in which YARN names the file."""
SECRET: Final = "firesteel.cluster.secret"
"""Name of the cluster's secret in the file."""
_MAGIC: Final = b"HDTS\0"


def secret_of_container(environ: Mapping[str, str]) -> str:
    """The cluster's secret, from the credentials of the container that this process runs in.

    Raises:
        ConfigurationError: this process runs in no container of the cluster.
    """
    path = environ.get(LOCATION)
    if not path:
        raise ConfigurationError(f"this is no container of YARN: the variable {LOCATION} is not set")
    try:
        secret = read_secrets(Path(path).read_bytes()).get(SECRET)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the container's credentials in {path} can't be read: {error}") from error
    if secret is None:
        raise ConfigurationError(f"the container's credentials in {path} have no secret of a cluster")
    return secret.decode()


def read_secrets(content: bytes) -> dict[str, bytes]:
    """The secrets in such a file, by name.

    Raises:
        ValueError: it is no such file, or has another version.
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
    content = stream.read(size)
    if size < 0 or len(content) < size:
        raise ValueError("it ends too early")
    return content


def _number(stream: BytesIO) -> int:
    """A variable-length number: the first byte is the number, from -112 to 127, or says how many bytes follow."""
    first = stream.read(1)
    if not first:
        raise ValueError("it ends too early")
    value = int.from_bytes(first, signed=True)
    if value >= -112:
        return value
    negative = value < -120
    size = -120 - value if negative else -112 - value
    magnitude = int.from_bytes(stream.read(size))
    return ~magnitude if negative else magnitude


def keep_secret(environ: Mapping[str, str], folder: Path, name: str) -> None:
    """Write the cluster's secret into a file that only this user can read.

    Raises:
        ConfigurationError: the credentials have no such secret.
        OSError: it can't be written.
    """
    path = folder / name
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(secret_of_container(environ))
