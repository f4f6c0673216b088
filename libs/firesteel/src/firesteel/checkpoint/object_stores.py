"""Which object store a place is in; its client is a plug-in, imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from firesteel.checkpoint.object_store import ObjectStore
from firesteel.checkpoint.places import ObjectPlace
from firesteel.config import Settings
from firesteel.core.plugins import load

GROUP: Final = "firesteel.object_stores"
"""Entry points by scheme: subclasses of ``ObjectStore`` that are made from settings."""


def open_store(place: ObjectPlace | str, settings: Settings) -> ObjectStore:
    """The store that a place is in; nothing is asked of it.

    Args:
        place: it, or its scheme.
        settings: of the job or the cluster.

    Raises:
        ConfigurationError: the settings are wrong, or its client is not installed.
    """
    scheme = place if isinstance(place, str) else place.scheme
    client: Callable[[Settings], ObjectStore] = load(GROUP, scheme)
    return client(settings)
