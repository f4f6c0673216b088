"""Opens the object store of a place; its client is a plug-in, imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from firesteel.checkpoint.object_store import ObjectStore
from firesteel.checkpoint.places import ObjectPlace
from firesteel.config import Settings
from firesteel.core.plugins import load

GROUP: Final = "firesteel.object_stores"
"""Group of entry points: scheme -> factory of an ``ObjectStore`` from settings."""


def open_store(place: ObjectPlace | str, settings: Settings) -> ObjectStore:
    """Open the store of a place; without I/O.

    Args:
        place: the place, or its scheme.
        settings: configuration of the job or the cluster.

    Raises:
        ConfigurationError: the settings are wrong, or its client is not installed.
    """
    scheme = place if isinstance(place, str) else place.scheme
    client: Callable[[Settings], ObjectStore] = load(GROUP, scheme)
    return client(settings)
