"""The service of the operator: it leads, watches the objects of its namespaces, and looks at each when it is due."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from firesteel.config import Settings
from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.core.errors import FencedError
from firesteel.ha.cells import AwayError
from firesteel.service.background import first_of
from firesteel.service.base import Service
from firesteel_kubernetes.api import KubernetesApi, Watched
from firesteel_kubernetes.high_availability import KubernetesCells
from firesteel_operator.reconciler import FAILED_SECONDS, Reconciler
from firesteel_operator.specs import DEPLOYMENTS, GROUP, SESSION_JOBS, VERSION

logger = logging.getLogger(__name__)
COMPONENT: Final = "leader"
CAMPAIGN_SECONDS: Final = 2.0
CHECK_SECONDS: Final = 1.0
"""Seconds between two checks whether this operator still leads."""
AT_ONCE: Final = 8
"""Objects that are looked at in parallel."""
Key = tuple[str, str, str]
"""Namespace, plural and name of an object."""
_CAMPAIGNS: Final = CallPool("campaigns", threads=1, deadline=None)
_LEADERSHIP: Final = CallPool("leadership", deadline=30.0)
_RECONCILIATIONS: Final = CallPool("reconciliations", threads=AT_ONCE, deadline=None)
"""Pool without a deadline, since each request to Kubernetes has its own."""


class OperatorService(Service):
    """The operator, which works while it leads.

    Args:
        settings: of the operator; they name the Lease by which one of several operators leads.
        api: of Kubernetes.
        reconcilers: by namespace.
        interval: seconds between two looks at an object for which nothing is under way.
    """

    def __init__(
        self, settings: Settings, api: KubernetesApi, reconcilers: Mapping[str, Reconciler], interval: float
    ) -> None:
        super().__init__("operator", host_names=("*",))
        self._api, self._reconcilers, self._interval = api, dict(reconcilers), interval
        self._cells = KubernetesCells(settings, api)
        self._epoch: int | None = None
        self._due: dict[Key, float] = {}
        self._busy: set[Key] = set()
        self._changed = asyncio.Event()
        self._watches: list[Watched] = []
        self._checked = float("-inf")

    @property
    def leads(self) -> bool:
        """Whether this operator does the work."""
        return self._epoch is not None

    async def on_start(self) -> None:
        self.spawn(self._run(), "operator")

    async def on_stop(self) -> None:
        """End the watches and the leadership, so that another operator may lead."""
        for watch in self._watches:
            watch.end()
        if self._epoch is not None:
            await _LEADERSHIP.call(self._cells.release, COMPONENT, self._epoch)
        await close_in_time(self._cells.close, "the connection to Kubernetes")

    async def _run(self) -> None:
        await self._campaign()
        self._follow()
        while True:
            now = asyncio.get_running_loop().time()
            if now - self._checked >= CHECK_SECONDS:
                await self._check()
                self._checked = now
            ready = [key for key, due in self._due.items() if due <= now and key not in self._busy]
            for key in ready[: AT_ONCE - len(self._busy)]:
                self._busy.add(key)
                del self._due[key]
                self.spawn(self._look(key), f"looking at {key[2]}")
            self._changed.clear()
            waits = [due - now for key, due in self._due.items() if key not in self._busy]
            pause = min([CAMPAIGN_SECONDS, *(max(0.05, wait) for wait in waits)])
            await first_of(self._changed.wait(), asyncio.sleep(pause))

    async def _campaign(self) -> None:
        while self._epoch is None:
            try:
                self._epoch = await _CAMPAIGNS.call(self._cells.campaign, COMPONENT)
            except (AwayError, OSError) as error:
                logger.warning("the operator can't campaign for leadership: %s", error)
            if self._epoch is None:
                await asyncio.sleep(CAMPAIGN_SECONDS)
        logger.info("this operator leads")

    async def _check(self) -> None:
        """Check that this operator still leads; otherwise it ends, is restarted, and waits for its turn."""
        assert self._epoch is not None
        try:
            await _LEADERSHIP.call(self._cells.check, COMPONENT, self._epoch)
        except FencedError:
            self._epoch = None
            raise
        except OSError as error:  # nobody else leads before the Lease is over, and then ``check`` knows it
            logger.warning("whether this operator still leads can't be checked for now: %s", error)

    def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        for namespace in self._reconcilers:
            for plural in (DEPLOYMENTS, SESSION_JOBS):

                def changed(watched: Watched, namespace: str = namespace, plural: str = plural) -> None:
                    names = list(watched.snapshot())
                    loop.call_soon_threadsafe(self._heard, namespace, plural, names)

                path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}"
                self._watches.append(self._api.watch(path, {}, changed))

    def _heard(self, namespace: str, plural: str, names: Sequence[str]) -> None:
        """Look at all objects of a kind after a change of any: the job of a session depends on its session."""
        now = asyncio.get_running_loop().time()
        for name in names:
            self._due[namespace, plural, name] = now
        self._changed.set()

    async def _look(self, key: Key) -> None:
        namespace, plural, name = key
        again: float | None = FAILED_SECONDS
        try:
            again = await _RECONCILIATIONS.call(self._reconcilers[namespace].reconcile, plural, name)
        except OSError as error:
            logger.warning("%s %s: %s", plural, name, error)
        except Exception:  # a failure with one object must not stop the others
            logger.exception("%s %s: the look has failed", plural, name)
        finally:
            self._busy.discard(key)
            if again is not None:
                due = asyncio.get_running_loop().time() + min(again, self._interval)
                self._due[key] = min(due, self._due.get(key, due))
            self._changed.set()
