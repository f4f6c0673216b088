"""The rows of a contract, each of which describes one call, and the gateways whose attributes are rows.

The calling side makes a gateway with an address, and awaits its rows as methods. On the answering side
``firesteel.rpc.answers`` marks the handler of a row. Type checkers hold both sides to the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from enum import Enum, StrEnum
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast, overload

from firesteel.protocol.message import Empty, Message

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message | None)
DEFAULT_TIMEOUT: Final = 10.0
"""Seconds; Flink's ``pekko.ask.timeout``."""


class Caller(StrEnum):
    """The component that may call a method."""

    DISPATCHER = "dispatcher"
    RESOURCEMANAGER = "resourcemanager"
    JOBMASTER_HOST = "jobmaster host"
    JOBMASTER = "jobmaster"
    TASKMANAGER = "taskmanager"
    CLIENT = "client"


class Fence(Enum):
    """Whose fencing token a call carries, and when the call is refused."""

    CALLEE = "callee"
    """The callee's token, as the caller knows it: refused if another callee leads by now."""
    CALLEE_IF_KNOWN = "callee if known"
    """Like ``CALLEE``, but a caller that does not know the token yet sends none, and learns it from the answer."""
    CALLER = "caller"
    """The caller's own token: refused unless the caller leads the job or slot that the call is about."""
    NONE = "none"
    """No token: every process of the cluster may call, without knowing who leads."""


class Channel(Protocol):
    """Carries calls; ``firesteel.rpc.RpcClient`` is one."""

    async def call(
        self, base_url: str, method: str, payload: Mapping[str, Any], token: str = "", timeout: float = DEFAULT_TIMEOUT
    ) -> dict[str, Any]:
        """Call ``<base_url>/rpc/<method>`` and return the answer's payload."""


class Method(Generic[Request, Answer]):
    """One row: an idempotent call, whose name is that of the attribute.

    Args:
        request: type of the request; ``Empty``: it has no fields.
        answer: type of the answer; None: the answer only says that the call was carried out.
        by: components that may call.
        fence: whose token the call carries; default: that of the gateway.
        at_least: seconds for which callers wait for an answer at least, also with a shorter timeout.
        waits: additional seconds that the callee may take for a message.
    """

    name: str
    fence: Fence

    @overload
    def __init__(
        self: Method[Request, None],
        request: type[Request],
        *,
        by: tuple[Caller, ...],
        fence: Fence | None = None,
        at_least: float = 0.0,
        waits: Callable[[Request], float] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        request: type[Request],
        answer: type[Answer],
        *,
        by: tuple[Caller, ...],
        fence: Fence | None = None,
        at_least: float = 0.0,
        waits: Callable[[Request], float] | None = None,
    ) -> None: ...

    def __init__(
        self,
        request: type[Request],
        answer: type[Any] | None = None,
        *,
        by: tuple[Caller, ...],
        fence: Fence | None = None,
        at_least: float = 0.0,
        waits: Callable[[Request], float] | None = None,
    ) -> None:
        self.request, self.answer, self.by = request, answer, frozenset(by)
        self.at_least, self.waits = at_least, waits
        if fence is not None:
            self.fence = fence

    def __repr__(self) -> str:
        return f"Method({self.name})"

    def __set_name__(self, owner: type[Gateway], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, gateway: None, owner: type[Gateway]) -> Self: ...

    @overload
    def __get__(self, gateway: Gateway, owner: type[Gateway]) -> RemoteMethod[Request, Answer]: ...

    def __get__(self, gateway: Gateway | None, owner: type[Gateway]) -> Self | RemoteMethod[Request, Answer]:
        return self if gateway is None else RemoteMethod(gateway, self)

    def read_answer(self, plain: Mapping[str, Any]) -> Answer:
        """Read the answer of a callee.

        Raises:
            ProtocolError: the answer is malformed.
        """
        return cast(Answer, None if self.answer is None else self.answer.from_plain(plain))


class RemoteMethod(Generic[Request, Answer]):
    """A method of a service at an address."""

    __slots__ = ("_gateway", "_method")

    def __init__(self, gateway: Gateway, method: Method[Request, Answer]) -> None:
        self._gateway, self._method = gateway, method

    @overload
    def __call__(self: RemoteMethod[Empty, Answer]) -> Coroutine[Any, Any, Answer]: ...

    @overload
    def __call__(self, message: Request) -> Coroutine[Any, Any, Answer]: ...

    def __call__(self, message: Message | None = None) -> Coroutine[Any, Any, Answer]:
        """Make the call.

        Raises:
            FencedError: the token is stale: find the leader again.
            PeerUnreachableError: no answer; the call may have been carried out.
            RpcFault: the callee refused the call, or failed in it.
            ProtocolError: the answer is malformed.
        """
        return self._gateway.call(self._method, cast(Request, message or Empty()))


class Gateway:
    """Calls of a service to another one, as methods; a service never holds another service itself.

    Args:
        channel: carries the calls.
        address: base URL of the callee; empty where it is not known.
        token: carried by the calls, as their fences say.
        timeout: seconds for which callers wait for an answer.
    """

    methods: ClassVar[Mapping[str, Method[Any, Any]]]
    """All rows by name."""

    def __init__(self, channel: Channel, address: str, token: str = "", timeout: float = DEFAULT_TIMEOUT) -> None:
        self._channel, self.address, self.token, self.timeout = channel, address.rstrip("/"), token, timeout

    def __init_subclass__(cls, fence: Fence = Fence.CALLEE) -> None:
        cls.methods = {
            name: row for base in reversed(cls.__mro__) for name, row in vars(base).items() if isinstance(row, Method)
        }
        for row in cls.methods.values():
            row.fence = getattr(row, "fence", fence)

    def at(self, address: str, token: str) -> Self:
        """A gateway to another callee, over the same channel."""
        return type(self)(self._channel, address, token, self.timeout)

    async def call(self, method: Method[Request, Answer], message: Request) -> Answer:
        """Make the call of a row; see ``RemoteMethod``."""
        timeout = max(method.at_least, self.timeout)
        if method.waits is not None:
            timeout += method.waits(message)
        plain = await self._channel.call(self.address, method.name, message.to_plain(), self.token, timeout)
        return method.read_answer(plain)
