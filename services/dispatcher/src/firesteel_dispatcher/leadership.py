"""Leaders: this Dispatcher's own leadership with the store of jobs, and links to the other leaders of the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from firesteel.config.addresses import is_loopback
from firesteel.core.backoff import pauses
from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError
from firesteel.core.ids import new_fencing_token
from firesteel.ha.jobs import JobStore, StoreContents
from firesteel.ha.services import DISPATCHER, JOBMASTER_HOST, RESOURCEMANAGER, HighAvailabilityServices
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterHostGateway, ResourceManagerGateway
from firesteel.rpc import RpcClient
from firesteel.service.leader_link import LeaderChannel
from firesteel.service.leaders import Candidate
from firesteel.service.retries import until_it_works
from firesteel_dispatcher.rest_server import RestListener
from firesteel_dispatcher.standby import RestRelay

logger = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_LOOK_PAUSE: Final = 1.0
"""Seconds before the store of jobs is opened again after it could not be read; each pause doubles."""
_LONGEST_LOOK_PAUSE: Final = 30.0
_END_CALL_SECONDS: Final = 5.0
_FIRST_END_PAUSE, _LONGEST_END_PAUSE = 0.1, 2.0
"""Seconds between two calls to a service that is to end with the cluster."""


class DispatcherLeadership:
    """The leadership of this process over the cluster, and the store of jobs, which only the leader opens.

    Args:
        ha: elects leaders and keeps jobs.
        clock: says when the store was opened.

    Attributes:
        candidate: this process in the election of the Dispatcher.
        token: fencing token; calls to this Dispatcher carry it.
        term: orders Dispatchers for JobMasters; known once this process leads.
        address: internal base URL of this Dispatcher; known once it listens.
    """

    def __init__(self, ha: HighAvailabilityServices, clock: Clock) -> None:
        self.ha, self._clock = ha, clock
        self.candidate = Candidate(ha, DISPATCHER)
        self.token, self.term, self.address = str(new_fencing_token()), 0, ""
        self._store: JobStore | None = None
        # One thread, so calls run in order: none may come after its own repeat.
        self._store_thread = CallPool("dispatcher-store", threads=1, deadline=None)

    @property
    def store(self) -> JobStore:
        """The store of jobs; there is one as soon as this Dispatcher leads."""
        if self._store is None:
            raise RuntimeError("the Dispatcher does not lead yet")
        return self._store

    async def on_disk(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a method of the store in the store's thread, after all calls before it."""
        return await self._store_thread.call(function, *arguments)

    async def lead(self, listener: RestListener, own_host: str = "") -> StoreContents:
        """Lead the cluster, and read what earlier Dispatchers have stored.

        While another Dispatcher leads, the REST port of this process hands connections on to it.

        Args:
            listener: of this process's REST API.
            own_host: host name under which this process will announce itself.

        Raises:
            ConfigurationError: the store's directory can't be used, or another Dispatcher leads and stays.
        """
        relay = RestRelay(self.ha, listener.host, listener.ports[0], own_host)
        # No client of another host reaches loopback, and a port that the system chose for the leader is not known here.
        relays = listener.ports[0] != 0 and not is_loopback(listener.host)

        async def stand_by() -> None:
            nonlocal relays
            if relays:
                relays = False  # the relay runs until this process leads, however often it waits for its turn
                await relay.start()

        contents, look_pauses = None, pauses(_FIRST_LOOK_PAUSE, _LONGEST_LOOK_PAUSE)
        try:
            while contents is None:
                leadership = await self.candidate.lead(stand_by)
                store = self.ha.job_store(leadership)
                try:
                    contents = await self.on_disk(store.open, self._clock.epoch_ms())
                except FencedError as error:
                    logger.warning("another Dispatcher leads by now: %s", error)
                    await self.candidate.give_back()
                except OSError as error:  # trouble of the storage is no reason to lead without the jobs, nor to end
                    pause = next(look_pauses)
                    logger.error(
                        "%s. The leadership is given back, so that another host may try; next try here in %g s",
                        error, pause,
                    )  # fmt: skip
                    await self.candidate.give_back()
                    await asyncio.sleep(pause)
        finally:
            await relay.stop()
        self._store, self.term = store, contents.term
        return contents

    async def close(self) -> None:
        """Close the store; the leadership itself is given up later, when all ports are closed."""
        if self._store is not None:
            await close_in_time(self._store.close, "the store of jobs", self._store_thread)
        self._store_thread.shutdown(wait=False)


class Coordinators:
    """Links to the leaders beside this Dispatcher: the JobMaster host and the ResourceManager.

    Args:
        ha: says who leads.
        client: carries the calls; asked for at each call.
        host_changed: called on the event loop when another JobMaster host leads.
    """

    def __init__(
        self, ha: HighAvailabilityServices, client: Callable[[], RpcClient], host_changed: Callable[[], None]
    ) -> None:
        self.jobmaster_host = LeaderChannel(ha, JOBMASTER_HOST, JobMasterHostGateway, client, host_changed)
        self.resourcemanager = LeaderChannel(ha, RESOURCEMANAGER, ResourceManagerGateway, client)

    def start(self) -> None:
        """Follow who leads.

        Raises:
            ConfigurationError: the services that elect leaders can't be used.
        """
        self.jobmaster_host.start()
        self.resourcemanager.start()

    def close(self) -> None:
        """Stop following the leaders."""
        self.jobmaster_host.close()
        self.resourcemanager.close()

    def addresses(self) -> dict[str, str]:
        """Base URLs by the names that users see; empty where nobody is known to lead."""
        return {"resourcemanager": self.resourcemanager.where()[0], "jobmaster host": self.jobmaster_host.where()[0]}

    async def overview(self) -> m.ClusterOverview:
        """TaskManagers and slots.

        Raises:
            RpcError: the ResourceManager does not answer.
        """
        return await self.resourcemanager.gateway().overview()

    async def shut_down(self, clock: Clock, deadline: float) -> None:
        """Have both end with all that they look after; first the host, so that no JobMaster asks for slots again.

        Args:
            clock: of the deadline.
            deadline: monotonic seconds; a service that is away until then may be left.
        """
        await _end_service(
            "JobMaster host", lambda: self.jobmaster_host.gateway(_END_CALL_SECONDS).shut_down(), clock, deadline
        )
        await _end_service(
            "ResourceManager", lambda: self.resourcemanager.gateway(_END_CALL_SECONDS).shut_down(), clock, deadline
        )


async def _end_service(name: str, shut_down: Callable[[], Awaitable[None]], clock: Clock, deadline: float) -> None:
    """Call until the service answers: one that is away may be on its way back."""
    in_time = lambda: clock.monotonic() < deadline  # noqa: E731
    call_pauses = pauses(_FIRST_END_PAUSE, _LONGEST_END_PAUSE)
    if not await until_it_works(f"end of the {name}", shut_down, in_time, waits=call_pauses):
        logger.error("the %s was not told to end, and may be left", name)
