"""Channels to those who lead: who that is, the registration there, and what is said to them.

``LeaderChannel`` finds who leads a component, for each call and each repeat of it anew; Dispatcher and JobMaster host
speak so with their peers. ``LeaderLink`` is one to the ResourceManager, under a registration: JobMasters and
TaskManagers have it. JobMasters do not look for a Dispatcher: the one that leads adopts them, with a term that they
check, so that what they say goes to nobody who was deposed (``firesteel_jobmaster.dispatcher``).
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
from firesteel.service.leaders import PeerLeader
from firesteel.service.registration import Registration, RegistrationFailure, RegistrationSettings
from firesteel.service.retries import Failure, repeated

logger = logging.getLogger(__name__)
G = TypeVar("G", bound=Gateway)
T = TypeVar("T")
ANSWER_SECONDS: Final = 5.0
"""How long the answer to a registration is waited for by those who hear of the new leader before it."""
_REFUSALS: Final = frozenset({RpcCode.BAD_REQUEST, RpcCode.VERSION, RpcCode.NO_RESOURCES})


class LeaderChannel(Generic[G]):
    """Calls to whoever leads a component. ``start`` has to come first, on the event loop.

    Args:
        leaders: say where the leader is.
        component: see ``firesteel.ha.retrieval``.
        gateway: makes the calls.
        channel: carries them; asked for when there is something to say.
        changed: called on the event loop when another leader is known.
        address: where the leader is when leaders are not elected; empty: where ``leaders`` say.
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
        """Set when another leader is known than at the time at which this was made."""

    def start(self) -> None:
        """Follow who leads.

        Raises:
            ConfigurationError: it can't be known.
        """
        self._leader.start()

    def _follow(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
        self._on_changed()

    def close(self) -> None:
        """Follow nobody any longer. Idempotent."""
        self._leader.stop()

    def where(self, otherwise: str = "") -> tuple[str, str]:
        """Address and token of the leader, as far as they are known; where leaders are not elected, the other one."""
        leader, otherwise = self._leader.leader, otherwise or self._address
        if otherwise and self._leader.elected is None:
            return otherwise, ""
        return ("", "") if leader is None else (leader.address, leader.token)

    def gateway(self, timeout: float = DEFAULT_TIMEOUT, otherwise: str = "") -> G:
        """For a call to the leader of now; ``otherwise`` as in ``where``."""
        return self._make(self._channel(), *self.where(otherwise), timeout)

    async def ask(
        self,
        call: Callable[[G], Awaitable[T]],
        goes_on: Callable[[Failure], bool],
        waits: Iterable[float],
        otherwise: str = "",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> T:
        """Make a call, again and again, each time to the leader of then; see ``repeated``.

        When another one leads, neither the former one's answer is waited for, nor the next repeat.
        """
        change = self._change

        async def ask() -> T:
            nonlocal change
            change = self._change
            return await self._unless_changed(call(self.gateway(timeout, otherwise)))

        async def pause(seconds: float) -> None:
            try:
                async with asyncio.timeout(seconds):
                    await change.wait()
            except TimeoutError:
                pass

        return await repeated(ask, goes_on, waits, pause)

    async def _unless_changed(self, call: Awaitable[T]) -> T:
        """The answer to a call to the leader of now.

        Raises:
            PeerUnreachableError: another one leads; the call may have happened.
        """
        loop = asyncio.get_running_loop()
        calling = loop.create_task(_made(call), name=f"call to the {self._component}")
        changed = loop.create_task(self._change.wait())
        try:
            await asyncio.wait({calling, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            calling.cancel()  # which does nothing where it is done
        if not calling.done():
            await asyncio.wait({calling})
        if calling.cancelled():
            raise PeerUnreachableError(f"another {self._component} leads now")
        return calling.result()


async def _made(call: Awaitable[T]) -> T:
    return await call


class LeaderLink(LeaderChannel[ResourceManagerGateway]):
    """Registers, and again after every loss; ``keep`` runs it. ``start`` has to come first, on the event loop.

    Args:
        leaders: say where the ResourceManager is.
        channel: carries the calls; asked for when there is something to say.
        register: presents the caller there; returns the token of the leader, and how many seconds it lets pass between
            two heartbeats, 0 if it sends none.
        settings: pauses and timeouts.
        clock: measures them.
        needed: whether registering goes on for ever at this moment.
        registered: told after each registration.
        lost: told, with the cause, when the bond broke.
        ended: told, with the cause, when it is not to be had, or says that another one has followed the caller.
        address: where the ResourceManager is when leaders are not elected; empty: where ``leaders`` say.
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
        """Where signs of life are told, and how the registration stands."""
        self._alarm, self._registered, self._answered = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answered.set()  # no registration is on its way
        self.is_closed = False

    def close(self) -> None:
        """Register no more; what is registered stays so. Idempotent."""
        self.is_closed = True
        super().close()
        self._alarm.set()

    def gateway(self, timeout: float = DEFAULT_TIMEOUT, otherwise: str = "") -> ResourceManagerGateway:
        """For calls under the registration, or to the leader without one."""
        address, token = self.where(otherwise)
        if self.bond.is_registered or not token:
            token = self.bond.token
        return self._make(self._channel(), address, token, timeout)

    def lost(self, cause: str) -> None:
        """The leader does not know the caller any more, or leads no more: register again."""
        if self.bond.is_registered:
            self.bond.lost(cause)
            self._alarm.set()
            self._on_lost(cause)

    async def answered(self) -> None:
        """Wait, some seconds at most, for the answer to a registration that is on its way.

        What a ResourceManager sends as soon as it knows us may be here before its answer.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._answered.wait()
        except TimeoutError:
            pass

    async def keep(self) -> None:
        """Register, and again whenever the bond broke; until it is closed or given up."""
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
            try:
                async with asyncio.timeout(max(0.0, due - self._clock.monotonic()) + 0.001):
                    await self._alarm.wait()
            except TimeoutError:
                pass

    async def tell(
        self, what: str, call: Callable[[ResourceManagerGateway], Awaitable[None]], waits: Iterable[float]
    ) -> None:
        """Say something, as soon as there is a registration; also to the next leader, if this one leads no more.

        Args:
            what: for logs.
            call: harmless to repeat.
            waits: seconds before each repeat; after them it is given up.
        """

        async def say() -> None:
            while not self.bond.is_registered:
                self._registered.clear()
                await self._registered.wait()
            try:
                await call(self.gateway())
            except FencedError:
                self.lost("another ResourceManager leads")
                raise

        try:
            await repeated(say, lambda error: isinstance(error, PeerUnreachableError | FencedError), waits)
        except RpcError as error:
            logger.warning("the ResourceManager did not hear %s: %s", what, error)

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
