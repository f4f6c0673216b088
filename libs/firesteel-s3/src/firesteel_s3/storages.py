"""What ``s3://`` paths are to checkpoints and to files; all but the client is the core's, for any object store."""

from __future__ import annotations

from firesteel.checkpoint.object_storage import ObjectCheckpointStorage
from firesteel.connectors.filesystems.object_files import ObjectFileSystem


class S3CheckpointStorage(ObjectCheckpointStorage):
    """The checkpoint storage ``s3``: a bucket of MinIO, or of any other object store that speaks S3."""

    name = "s3"


class S3FileSystem(ObjectFileSystem):
    """Files of buckets, at ``s3://bucket/key``, also ``s3a://`` and ``s3p://``, as Flink names them."""

    scheme = "s3"
