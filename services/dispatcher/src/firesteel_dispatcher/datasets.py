"""Data sets: results that ``cache()`` keeps, as far as this host sees them.

Their files belong to programs, which remove them. A program whose data set a user deletes here computes it again.
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
    """Data sets in the directories that the cluster's configuration and the jobs name.

    Args:
        settings: of the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._places = OrderedDict({place_of(settings.get(options.CACHE_DIRECTORY)): None})
        self.deletions = Disposals("data set", self._remove)

    def submitted(self, config: Mapping[str, str]) -> None:
        """A job became known; its settings may name another directory of results."""
        if configured := config.get(options.CACHE_DIRECTORY.key):
            self._places.setdefault(configured)
            while len(self._places) > MOST_PLACES:
                self._places.popitem(last=False)

    async def all(self) -> list[KeptResults]:
        """All data sets of the moment."""
        return await _LISTINGS.call(self._look, tuple(self._places))

    @staticmethod
    def _look(places: tuple[str, ...]) -> list[KeptResults]:
        return [dataset for place in places for dataset in kept_in(place)]

    def _remove(self, id_: str) -> None:
        """Remove a data set, on a thread.

        Raises:
            FileSystemError: there is no such data set.
            OSError: it can't be removed.
        """
        directories = [dataset.directory for dataset in self._look(tuple(self._places)) if dataset.id == id_]
        if not directories:
            raise FileSystemError(f"data set {id_} is gone")
        for directory in directories:
            shutil.rmtree(directory)
