"""What paths of checkpoints mean: absolute paths and ``file:`` URIs are directories that all hosts see,
``s3://bucket/path`` is in an object store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firesteel.core.errors import ConfigurationError

S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3p"})
"""The last two are names of Flink's file systems for the same."""


def is_s3(path: str) -> bool:
    """Whether a path is in an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in S3_SCHEMES


@dataclass(frozen=True)
class S3Place:
    """A place in an object store.

    Attributes:
        bucket: its name.
        key: of an object, or the begin of keys; without a slash in front or behind.
    """

    bucket: str
    key: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}" if self.key else f"s3://{self.bucket}"

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> S3Place:
        """The directory that the last part is in."""
        return S3Place(self.bucket, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> S3Place:
        return S3Place(self.bucket, f"{self.key}/{name}" if self.key else name)


def s3_place(text: str, what: str) -> S3Place:
    """The place that a URI names.

    Args:
        text: as the user wrote it, or as ``str`` of a place.
        what: named in errors.

    Raises:
        ConfigurationError: it is none.
    """
    if not is_s3(text):
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store is expected, s3://bucket/directory")
    _, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    if "@" in bucket:  # not shown: it may be a secret
        raise ConfigurationError(
            f"{what}: a URI of an object store names no user and no secret (s3://bucket/directory); set s3.access-key "
            "and s3.secret-key, or firesteel.s3.credentials-file"
        )
    if not bucket or ":" in bucket:
        raise ConfigurationError(
            f"{what} = {text!r}: s3://bucket/directory is expected; the address of the server is the option s3.endpoint"
        )
    if "?" in key or "#" in key or "\0" in key:
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store holds no ?, # or zero byte")
    parts = [part for part in key.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store has no . or .. in it")
    return S3Place(bucket, "/".join(parts))
