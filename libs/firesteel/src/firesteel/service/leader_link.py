"""Channels to leaders: finding the leader, registering there, and calling it.

``LeaderChannel`` finds the leader of a component, anew for each call and each repeat. Dispatcher and JobMaster host
call their peers so. ``LeaderLink`` is a channel to the ResourceManager under a registration; JobMasters and
TaskManagers have one. JobMasters do not look for a Dispatcher: the Dispatcher that leads adopts them. It names its
term, which they check, so that no report goes to a Dispatcher that was deposed (``firesteel_jobmaster.dispatcher``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

from firesteel.core.clock import Clock
from firesteel.core.errors import FencedError, PeerUnreachableError, ProtocolError, RpcError
from firesteel.ha.retrieval import RESOURCEMANAGER, LeaderRetrieval
from firesteel.protocol.gateways import ResourceManagerGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.protocol.method import DEFAULT_TIMEOUT, Channel, Gateway
from firesteel.service.background import first_of
from firesteel.service.leaders import PeerLeader
from firesteel.service.registration import Registration, RegistrationFailure, RegistrationSettings
from firesteel.service.retries import Failure, repeated

logger = logging.getLogger(__name__)
G = TypeVar("G", bound=Gateway)
T = TypeVar("T")
ANSWER_SECONDS: Final = 5.0
"""Seconds that a call of a new leader waits for the answer to the registration there."""
_REFUSALS: Final = frozenset({RpcCode.BAD_REQUEST, RpcCode.VERSION, RpcCode.NO_RESOURCES})


class LeaderChannel(Generic[G]):
    """Calls to the leader of a component. ``start`` has to come first, on the event loop.

    Args:
        leaders: say who leads.
        component: see ``firesteel.ha.retrieval``.
        gateway: makes the calls.
        channel: returns the channel that carries the calls; called for each of them.
        changed: called on the event loop when another leader becomes known.
        address: of the leader where leaders are not elected; empty: the address that ``leaders`` know.
    """

    def __init__(
        self,
        leaders: LeaderRetrieval,
        component: str,
        gateway: Callable[[Channel, str, str, float], G],
        channel: Callable[[], Channel],
        changed: Callable[[], None] = lambda: None,
        address: str = "",
    ) -> None:
        self._leader = PeerLeader(leaders, component, self._follow)
        self._component, self._make, self._channel, self._address = component, gateway, channel, address
        self._on_changed = changed
        self._change = asyncio.Event()
        """Set, and replaced by a new event, when another leader becomes known."""

    def start(self) -> None:
        """Follow who leads.

        Raises:
            ConfigurationError: the services that elect leaders can't be used.
        """
        self._leader.start()

    def _follow(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
        self._on_changed()

    def close(self) -> None:
        """Stop following the leader. Idempotent."""
        self._leader.stop()

    def where(self, otherwise: str = "") -> tuple[str, str]:
        """Address and token of the leader, as far as they are known; ``otherwise`` where leaders are not elected."""
        leader, otherwise = self._leader.leader, otherwise or self._address
        if otherwise and self._leader.elected is None:
            return otherwise, ""
        return ("", "") if leader is None else (leader.address, leader.token)

    def gateway(self, timeout: float = DEFAULT_TIMEOUT, otherwise: str = "") -> G:
        """The gateway for a call to the present leader; ``otherwise`` as in ``where``."""
        return self._make(self._channel(), *self.where(otherwise), timeout)

    async def ask(
        self,
        call: Callable[[G], Awaitable[T]],
        goes_on: Callable[[Failure], bool],
        waits: Iterable[float],
        otherwise: str = "",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> T:
        """Make a call until it is answered, each time to the present leader; see ``repeated``.

        When the leader changes, the call is repeated at once, without waiting for the former leader's answer.
        """
        change = self._change

        async def ask() -> T:
            nonlocal change
            change = self._change
            return await self._unless_changed(call(self.gateway(timeout, otherwise)))

        async def pause(seconds: float) -> None:
            await first_of(change.wait(), asyncio.sleep(seconds))

        return await repeated(ask, goes_on, waits, pause)

    async def _unless_changed(self, call: Awaitable[T]) -> T:
        """The answer of the present leader to a call.

        Raises:
            PeerUnreachableError: another leader became known; the call may have been carried out.
        """
        loop = asyncio.get_running_loop()
        calling = loop.create_task(_answer_to(call), name=f"call to the {self._component}")
        changed = loop.create_task(self._change.wait())
        try:
            await asyncio.wait({calling, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            calling.cancel()  # no effect on a call that was answered
        if not calling.done():
            await asyncio.wait({calling})
        if calling.cancelled():
            raise PeerUnreachableError(f"another {self._component} leads now")
        return calling.result()


async def _answer_to(call: Awaitable[T]) -> T:
    return await call


class LeaderLink(LeaderChannel[ResourceManagerGateway]):
    """Registers at the ResourceManager, and again after each loss; ``keep`` runs it.

    ``start`` has to come first, on the event loop.

    Args:
        leaders: say who leads.
        channel: returns the channel that carries the calls; called for each of them.
        register: registers the owner; returns the token of the leader, and the seconds between two of its heartbeats,
            0 if it sends none.
        settings: pauses and timeouts.
        clock: measures them.
        needed: whether registering is repeated without a limit at the moment.
        registered: called after each registration.
        lost: called with the cause when the registration was lost.
        ended: called with the cause when the owner has to end: the ResourceManager was not reached in time, or it says
            that another process has replaced the owner.
        address: of the ResourceManager where leaders are not elected; empty: the address that ``leaders`` know.
    """

    def __init__(
        self,
        leaders: LeaderRetrieval,
        channel: Callable[[], Channel],
        register: Callable[[ResourceManagerGateway], Awaitable[tuple[str, float]]],
        settings: RegistrationSettings,
        clock: Clock,
        needed: Callable[[], bool],
        registered: Callable[[], None],
        lost: Callable[[str], None],
        ended: Callable[[str], None],
        address: str = "",
    ) -> None:
        super().__init__(leaders, RESOURCEMANAGER, ResourceManagerGateway, channel, self._leader_changed, address)
        self._register, self._clock = register, clock
        self._needed, self._on_registered, self._on_lost, self._on_ended = needed, registered, lost, ended
        self.bond = Registration(settings, clock)
        """State of the registration; signs of life of the ResourceManager go there."""
        self._alarm, self._registered, self._answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answered.set()  # no registration is on its way
        self.is_closed = False

    def close(self) -> None:
        """Stop registering; a registration that holds stays. Idempotent."""
        self.is_closed = True
        super().close()
        self._alarm.set()

    def gateway(self, timeout: float = DEFAULT_TIMEOUT, otherwise: str = "") -> ResourceManagerGateway:
        """The gateway for calls under the registration; without one, to the present leader."""
        address, token = self.where(otherwise)
        if self.bond.is_registered or not token:
            token = self.bond.token
        return self._make(self._channel(), address, token, timeout)

    def lost(self, cause: str) -> None:
        """The leader does not know the owner any more, or does not lead any more: register again."""
        if self.bond.is_registered:
            self.bond.lost(cause)
            self._alarm.set()
            self._on_lost(cause)

    async def answered(self) -> None:
        """Wait, some seconds at most, for the answer to a registration that is on its way.

        A call that the ResourceManager makes right after the registration can arrive before the answer to it.
        """
        await first_of(self._answered.wait(), asyncio.sleep(ANSWER_SECONDS))

    async def keep(self) -> None:
        """Register, and register again after each loss, until the link is closed or gives up."""
        while not self.is_closed:
            self._alarm.clear()
            was_registered = self.bond.is_registered
            calls = self.bond.tick()
            if was_registered and not self.bond.is_registered:
                self._on_lost("it gives no sign of life")
            for _ in calls:
                await self._call()
            due = self.bond.next_tick
            if due is None:
                return
            await first_of(self._alarm.wait(), asyncio.sleep(max(0.0, due - self._clock.monotonic()) + 0.001))

    async def tell(
        self, subject: str, call: Callable[[ResourceManagerGateway], Awaitable[None]], waits: Iterable[float]
    ) -> None:
        """Make a call as soon as there is a registration; if the leader changes, make it to the next one.

        Args:
            subject: of the call, for logs.
            call: harmless to repeat.
            waits: seconds before each repeat; after them the call is given up.
        """

        async def call_registered() -> None:
            while not self.bond.is_registered:
                self._registered.clear()
                await self._registered.wait()
            try:
                await call(self.gateway())
            except FencedError:
                self.lost("another ResourceManager leads")
                raise

        try:
            await repeated(call_registered, lambda error: isinstance(error, PeerUnreachableError | FencedError), waits)
        except RpcError as error:
            logger.warning("the ResourceManager did not hear %s: %s", subject, error)

    def _leader_changed(self) -> None:
        address, token = self.where()
        if self.is_closed or (self.bond.is_registered and token and token == self.bond.token):
            return
        was_registered, cause = self.bond.is_registered, f"the ResourceManager at {address} leads"
        self.bond.leads_elsewhere(cause)
        self._alarm.set()
        if was_registered:
            self._on_lost(cause)

    async def _call(self) -> None:
        gateway = super().gateway()
        self._answered.clear()
        try:
            token, interval = await self._unless_changed(self._register(gateway))
        except (RpcError, ProtocolError) as error:
            if isinstance(error, RpcFault) and error.code is RpcCode.GONE:
                self.close()
                self._on_ended(str(error))
                return
            if isinstance(error, PeerUnreachableError):
                kind = RegistrationFailure.NONE
            else:
                refused = isinstance(error, RpcFault) and error.code in _REFUSALS
                kind = RegistrationFailure.REFUSED if refused else RegistrationFailure.ERROR
            for end in self.bond.failed(kind, str(error), self._needed()):
                self._on_ended(end.cause)
        else:
            self.bond.accepted(token, interval)
            self._registered.set()
            self._on_registered()
        finally:
            self._answered.set()
