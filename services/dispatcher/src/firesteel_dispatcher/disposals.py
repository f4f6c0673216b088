"""Removals that users asked for: of savepoints and of data sets."""

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
"""Deadline of a removal: a savepoint of very many files takes its time."""


class Disposals:
    """Removals that are under way, and the results of the last ones. Each runs on a thread, since storage may hang.

    Args:
        kind: what is removed, for messages.
        dispose: removes a thing by its name; called on a thread.
    """

    def __init__(self, kind: str, dispose: Callable[[str], None]) -> None:
        self._kind, self._remove = kind, dispose
        self._threads = CallPool(f"removal of a {kind}", deadline=_SECONDS)
        self._results: OrderedDict[str, str | None] = OrderedDict()
        """Trigger id -> cause of a failure; empty = the removal is done, None = it is under way."""
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, path: str) -> str:
        """Begin a removal; returns its trigger id."""
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
            logger.info("%s %s was removed", self._kind, path)
        except (FiresteelError, OSError) as error:
            failure = str(error)
            logger.warning("%s %s was not removed: %s", self._kind, path, error)
        if trigger_id in self._results:
            self._results[trigger_id] = failure

    def known(self, trigger_id: str) -> bool:
        """Whether there is a removal with this trigger id."""
        return trigger_id in self._results

    def result(self, trigger_id: str) -> str | None:
        """Cause of a failure; empty = the removal is done; None = it is under way."""
        return self._results[trigger_id]
