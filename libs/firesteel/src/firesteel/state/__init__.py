"""State backends; and ``read_savepoint``, which looks into what they have written."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from firesteel.config.load import load_settings

if TYPE_CHECKING:
    from firesteel.common import Configuration

__all__ = ["read_savepoint"]


def read_savepoint(path: str, configuration: Configuration | None = None) -> Any:
    """Opens a savepoint, or a retained checkpoint: ``firesteel.checkpoint.reader.read_savepoint``.

    Args:
        path: its directory, on this host or in an object store (``s3://bucket/directory``).
        configuration: options ``s3.*`` on top of those of the configuration directory.

    Returns:
        a ``firesteel.checkpoint.reader.Savepoint``.
    """
    settings = load_settings(program=configuration.to_dict() if configuration else {})
    return import_module("firesteel.checkpoint.reader").read_savepoint(path, settings)  # which stands on state
