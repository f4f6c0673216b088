"""What paths of checkpoints mean: absolute paths and ``file:`` URIs are directories that all hosts see,
``s3://bucket/path`` is in an object store, and so is ``hdfs://namenode/path``, since HDFS is used as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from firesteel.core.errors import ConfigurationError

S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3p"})
"""The last two are names of Flink's file systems for the same."""
HDFS: Final = "hdfs"


def is_object(path: str) -> bool:
    """Whether a path is in an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and (scheme.lower() in S3_SCHEMES or scheme.lower() == HDFS)


@dataclass(frozen=True)
class ObjectPlace:
    """A place in an object store.

    Attributes:
        bucket: its name; of HDFS, ``host:port`` of the NameNode, the name of a name service, or nothing: the default.
        key: of an object, or the begin of keys; without a slash in front or behind.
        scheme: ``s3`` or ``hdfs``.
    """

    bucket: str
    key: str = ""
    scheme: str = "s3"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}" if self.key else f"{self.scheme}://{self.bucket}"

    def at(self, key: str) -> ObjectPlace:
        """Another place in the same store."""
        return ObjectPlace(self.bucket, key, self.scheme)

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPlace:
        """The directory that the last part is in."""
        return self.at(self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectPlace:
        return self.at(f"{self.key}/{name}" if self.key else name)


def object_place(text: str, what: str) -> ObjectPlace:
    """The place that a URI names.

    Args:
        text: as the user wrote it, or as ``str`` of a place.
        what: named in errors.

    Raises:
        ConfigurationError: it is none.
    """
    if not is_object(text):
        raise ConfigurationError(
            f"{what} = {text!r}: a path in an object store is expected, s3://bucket/directory or "
            "hdfs://namenode/directory"
        )
    scheme, _, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme.lower() == HDFS:
        _check_authority(bucket, text, what)
        return ObjectPlace(bucket, "/".join(_parts(key, text, what)), HDFS)
    if "@" in bucket:  # not shown: it may be a secret
        raise ConfigurationError(
            f"{what}: a URI of an object store names no user and no secret (s3://bucket/directory); set s3.access-key "
            "and s3.secret-key, or firesteel.s3.credentials-file"
        )
    if not bucket or ":" in bucket:
        raise ConfigurationError(
            f"{what} = {text!r}: s3://bucket/directory is expected; the address of the server is the option s3.endpoint"
        )
    return ObjectPlace(bucket, "/".join(_parts(key, text, what)))


def _parts(key: str, text: str, what: str) -> list[str]:
    if "?" in key or "#" in key or "\0" in key:
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store holds no ?, # or zero byte")
    parts = [part for part in key.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise ConfigurationError(f"{what} = {text!r}: a path in an object store has no . or .. in it")
    return parts


def _check_authority(authority: str, text: str, what: str) -> None:
    host, colon, port = authority.rpartition(":")
    if "@" in authority or (colon and not (host and port.isdigit() and int(port) < 65536)):
        raise ConfigurationError(
            f"{what} = {text!r}: hdfs://namenode:8020/directory is expected, hdfs://nameservice/directory, or "
            "hdfs:///directory for the default of core-site.xml; users are known by Kerberos or HADOOP_USER_NAME"
        )
