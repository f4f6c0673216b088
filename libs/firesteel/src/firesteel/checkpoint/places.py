"""Paths of checkpoints: in directories that all hosts see, or in object stores.

Absolute paths and ``file:`` URIs name directories, ``s3://bucket/path`` and ``hdfs://namenode/path`` places in an
object store (HDFS is used like one).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firesteel.core.errors import ConfigurationError

S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3p"})
"""Schemes of S3; the last two are those of Flink's two file systems for it."""
HDFS: Final = "hdfs"


def is_object(path: str) -> bool:
    """Whether a path is in an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and (scheme.lower() in S3_SCHEMES or scheme.lower() == HDFS)


def absolute_path(path: str) -> str:
    """A path made absolute, for processes with another working directory; a URI stays as it is."""
    return path if ":/" in path else str(Path(path).absolute())


@dataclass(frozen=True)
class ObjectPlace:
    """A place in an object store.

    Attributes:
        bucket: name of the bucket. HDFS: ``host:port`` of the NameNode, the name of a name service, or empty = the
            default of ``core-site.xml``.
        key: key of an object, or a prefix of keys; without a slash at its begin.
        scheme: ``s3`` or ``hdfs``.
    """

    bucket: str
    key: str = ""
    scheme: str = "s3"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}" if self.key else f"{self.scheme}://{self.bucket}"

    def at(self, key: str) -> ObjectPlace:
        """Return the place with another key in the same bucket."""
        return ObjectPlace(self.bucket, key, self.scheme)

    @property
    def name(self) -> str:
        """The last part of the key, behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPlace:
        """The place whose key lacks the last part: the directory of this one."""
        return self.at(self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> ObjectPlace:
        return self.at(f"{self.key}/{name}" if self.key else name)


def object_place(text: str, what: str) -> ObjectPlace:
    """Read the URI of a place in an object store.

    Args:
        text: URI, as the user wrote it, or as ``str`` of a place.
        what: what the URI is, named in errors.

    Raises:
        ConfigurationError: the URI is malformed, or not one of an object store.
    """
    if not is_object(text):
        raise ConfigurationError(
            f"{what} = {text!r}: a path in an object store is expected, s3://bucket/directory or "
            "hdfs://namenode/directory"
        )
    scheme, _, path = text.partition("://")
    bucket, _, key = path.partition("/")
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
