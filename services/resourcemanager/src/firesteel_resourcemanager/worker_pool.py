"""The workers of a provider, driven from a few threads, so that blocking calls never hold up the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from firesteel.core.call_pool import CallPool
from firesteel.protocol.provider import Provider, WorkerError, WorkerSpec

logger = logging.getLogger(__name__)
T = TypeVar("T")
_THREADS = 4


class WorkerPool:
    """Calls a provider about its workers, on threads. A provider that is not active is only closed.

    Args:
        provider: that is called; it ends with the pool.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.is_active = provider.is_active
        self.ends_within = provider.ends_within if provider.is_active else 0.0
        self._threads = CallPool("firesteel-workers", _THREADS, deadline=None)
        self._recovered = self._closed = False

    async def recover(self, resourcemanager_address: str) -> list[str]:
        """Find the workers of a former ResourceManager; returns their ids."""
        worker_ids = await self._run(lambda: self._provider.recover(resourcemanager_address))
        self._recovered = True
        return worker_ids

    async def start_worker(self, spec: WorkerSpec) -> None:
        """Have the provider start a worker.

        Raises:
            WorkerError: the worker can't be started.
        """

        def start() -> None:
            if self._closed:
                raise WorkerError("the ResourceManager is stopping")
            self._provider.start_worker(spec)

        await self._run(start)

    async def stop_worker(self, worker_id: str) -> None:
        """Have the provider stop a worker."""
        await self._run(lambda: self._provider.stop_worker(worker_id))

    async def ended_workers(self) -> list[tuple[str, str]]:
        """Workers that have ended since the last call, and how."""
        return await self._run(self._provider.ended_workers)

    async def waiting_workers(self) -> dict[str, str]:
        """Worker -> why it does not run yet."""
        return await self._run(self._provider.waiting_workers)

    async def close(self) -> None:
        """Leave the workers to the next ResourceManager, and end the threads."""
        await self._end(self._provider.close)

    async def terminate(self) -> None:
        """End all workers, and the threads."""
        await self._end(self._provider.terminate if self.is_active and self._recovered else self._provider.close)

    async def _end(self, call: Callable[[], None]) -> None:
        self._closed = True
        try:
            await self._run(call)
        except Exception:  # the provider is a plug-in; the ResourceManager ends whatever it does
            logger.exception("the provider did not end in order")
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Callable[[], T]) -> T:
        return await self._threads.call(call)
