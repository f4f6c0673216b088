"""Which object store a place is in; its client is an extra, and imported when it is needed."""

from __future__ import annotations

from firesteel.checkpoint.object_store import ObjectStore
from firesteel.checkpoint.places import HDFS, ObjectPlace
from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError


def open_store(place: ObjectPlace | str, settings: Settings) -> ObjectStore:
    """The store that a place is in; nothing is asked of it.

    Args:
        place: it, or its scheme.
        settings: of the job or the cluster.

    Raises:
        ConfigurationError: the settings are wrong, or its client is not installed.
    """
    scheme = place if isinstance(place, str) else place.scheme
    extra = "hdfs" if scheme == HDFS else "s3"
    try:
        if scheme == HDFS:
            from firesteel.checkpoint.hdfs_client import HdfsClient

            return HdfsClient(settings)
        from firesteel.checkpoint.s3_client import S3Client

        return S3Client(settings)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"paths that begin with {scheme}:// need the package {error.name!r}, which is not installed: pip install "
            f"'firesteel[{extra}]'"
        ) from error
