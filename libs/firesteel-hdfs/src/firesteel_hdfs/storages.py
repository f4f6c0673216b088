"""The plug-ins for ``hdfs://`` paths. All of it but the client is shared by object stores, and in ``firesteel``."""

from __future__ import annotations

from firesteel.checkpoint.object_storage import ObjectCheckpointStorage
from firesteel.connectors.filesystems.object_files import ObjectFileSystem


class HdfsCheckpointStorage(ObjectCheckpointStorage):
    """The checkpoint storage ``hdfs``: the names that object stores have, in folders of HDFS."""

    name = "hdfs"


class HdfsFileSystem(ObjectFileSystem):
    """Files of HDFS: a path means a file, or a folder with all that is below it."""

    scheme = "hdfs"
