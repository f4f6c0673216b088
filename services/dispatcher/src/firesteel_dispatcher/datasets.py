"""Data sets: results that ``cache()`` keeps, as far as this host sees them.

Their files belong to programs, which remove them; whoever deletes one here makes its program compute it again.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from firesteel.config import Settings, options
from firesteel.connectors.kept_results import KeptResults, kept_in, place_of
from firesteel.core.call_pool import CallPool
from firesteel.core.errors import FileSystemError
from firesteel_dispatcher.disposals import Disposals

MOST_PLACES: Final = 100
_LISTINGS: Final = CallPool("data sets")


class DataSets:
    """Those below the places that the cluster's configuration and jobs name.

    Args:
        settings: of the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._places = OrderedDict({place_of(settings.get(options.CACHE_DIRECTORY)): None})
        self.deletions = Disposals("data set", self._remove)

    def submitted(self, config: Mapping[str, str]) -> None:
        """A job has these settings: its program may keep results elsewhere."""
        if configured := config.get(options.CACHE_DIRECTORY.key):
            self._places.setdefault(configured)
            while len(self._places) > MOST_PLACES:
                self._places.popitem(last=False)

    async def all(self) -> list[KeptResults]:
        """What is there now."""
        return await _LISTINGS.call(self._look, tuple(self._places))

    @staticmethod
    def _look(places: tuple[str, ...]) -> list[KeptResults]:
        return [one for place in places for one in kept_in(place)]

    def _remove(self, id_: str) -> None:
        """Remove one, on a thread.

        Raises:
            FileSystemError: there is no such data set.
            OSError: it can't be removed.
        """
        found = [one for one in self._look(tuple(self._places)) if one.id == id_]
        if not found:
            raise FileSystemError(f"data set {id_} is gone")
        for one in found:
            shutil.rmtree(one.directory)
