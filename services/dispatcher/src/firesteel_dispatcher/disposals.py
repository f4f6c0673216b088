"""What is being removed: savepoints, data sets."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from firesteel.core.call_pool import CallPool
from firesteel.core.errors import FiresteelError

logger = logging.getLogger(__name__)
MOST_KEPT: Final = 1000
_SECONDS: Final = 600.0
"""A savepoint of very many files takes its time."""


class Disposals:
    """What is under way, and what became of the last ones. A directory may hang, and so may a few removals.

    Args:
        what: they are.
        dispose: removes one by its name; called on a thread.
    """

    def __init__(self, what: str, dispose: Callable[[str], None]) -> None:
        self._what, self._remove = what, dispose
        self._threads = CallPool(f"removal of a {what}", deadline=_SECONDS)
        self._results: OrderedDict[str, str | None] = OrderedDict()
        """By trigger id: why it failed, empty = it is gone, None = it is under way."""
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, path: str) -> str:
        """Remove one; returns the id to ask with."""
        trigger_id = uuid.uuid4().hex
        self._results[trigger_id] = None
        while len(self._results) > MOST_KEPT:
            self._results.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._dispose(trigger_id, path), name=f"disposal of {path}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return trigger_id

    async def _dispose(self, trigger_id: str, path: str) -> None:
        failure = ""
        try:
            await self._threads.call(self._remove, path)
            logger.info("%s %s was removed", self._what, path)
        except (FiresteelError, OSError) as error:
            failure = str(error)
            logger.warning("%s %s was not removed: %s", self._what, path, error)
        if trigger_id in self._results:
            self._results[trigger_id] = failure

    def known(self, trigger_id: str) -> bool:
        """Whether there is such a request."""
        return trigger_id in self._results

    def result(self, trigger_id: str) -> str | None:
        """Why it failed; empty = it is gone; None = it is under way."""
        return self._results[trigger_id]
