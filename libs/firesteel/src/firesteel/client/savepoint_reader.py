"""Looks into savepoints and retained checkpoints; ``firesteel.client.savepoint_writer`` writes them."""

from __future__ import annotations

from firesteel.checkpoint import reader
from firesteel.common import Configuration
from firesteel.config.load import load_settings

__all__ = ["Savepoint", "read_savepoint"]

Savepoint = reader.Savepoint


def read_savepoint(path: str, configuration: Configuration | None = None) -> Savepoint:
    """Opens a savepoint, or a retained checkpoint.

    Values are unpickled in this process as they are read, so their classes have to be importable here.

    Args:
        path: its directory, on this host or in an object store (``s3://bucket/directory``).
        configuration: options ``s3.*`` on top of those of the configuration directory.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigurationError: it is no path, or the settings of its object store are wrong.
    """
    return reader.read_savepoint(path, load_settings(program=configuration.to_dict() if configuration else {}))
