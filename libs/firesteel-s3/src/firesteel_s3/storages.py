"""The plug-ins for ``s3://`` paths. All of it but the client is shared by object stores, and in ``firesteel``."""

from __future__ import annotations

from firesteel.checkpoint.object_storage import ObjectCheckpointStorage
from firesteel.connectors.filesystems.object_files import ObjectFileSystem


class S3CheckpointStorage(ObjectCheckpointStorage):
    """The checkpoint storage ``s3``: a bucket of MinIO, or of any other object store that speaks S3."""

    name = "s3"


class S3FileSystem(ObjectFileSystem):
    """Files of buckets, at ``s3://bucket/key``, also ``s3a://`` and ``s3p://``, as Flink names them."""

    scheme = "s3"
