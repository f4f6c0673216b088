"""Makes the handlers of a service from the rows of a gateway."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar, overload

from firesteel.core.errors import FencedError
from firesteel.protocol.message import Message, RpcCode, RpcFault
from firesteel.protocol.method import Answer, Fence, Gateway, Method, Request
from firesteel.rpc.server import Handler, RpcRequest

S = TypeVar("S")
_RequestIn = TypeVar("_RequestIn", bound=Message)
_AnswerOut = TypeVar("_AnswerOut", bound=Message | None)
Check = Callable[[Method[Any, Any], RpcRequest], Awaitable[None] | None]
"""Lets a call pass; raises ``FencedError`` if its caller, or the callee that it means, does not lead any more."""
_ROW = "__answers__"


class _Answers(Protocol, Generic[_RequestIn, _AnswerOut]):
    @overload
    def __call__(
        self, handler: Callable[[S, _RequestIn], Coroutine[Any, Any, _AnswerOut]]
    ) -> Callable[[S, _RequestIn], Coroutine[Any, Any, _AnswerOut]]: ...

    @overload
    def __call__(self, handler: Callable[[S, _RequestIn], _AnswerOut]) -> Callable[[S, _RequestIn], _AnswerOut]: ...


def answers(method: Method[Request, Answer]) -> _Answers[Request, Answer]:
    """Mark the method of a class that answers a row; it takes the request, and may be a coroutine function."""

    def mark(handler: Any) -> Any:
        setattr(handler, _ROW, method)
        return handler

    return mark


def handlers_of(
    gateway: type[Gateway],
    calls: type[S],
    target: Callable[[RpcRequest], S],
    check: Check,
    refusals: Mapping[type[Exception], RpcCode] | None = None,
) -> dict[str, Handler]:
    """Handlers for ``rpc_routes``: all rows of a gateway, answered by the methods of a class.

    Args:
        gateway: the contract.
        calls: the class whose methods ``answers`` marks.
        target: returns the object that answers a call; it may be made for the call.
        check: lets a call pass, or refuses it.
        refusals: exceptions of the methods, and the codes that callers get for them.

    Raises:
        TypeError: a row has no handler, or more than one, or there is one for a row of another gateway.
    """
    functions: dict[str, Callable[[S, Any], Any]] = {}
    for _, function in inspect.getmembers(calls, inspect.isfunction):
        row: Method[Any, Any] | None = getattr(function, _ROW, None)
        if row is None:
            continue
        if gateway.methods.get(row.name) is not row or row.name in functions:
            raise TypeError(f"{calls.__name__}.{function.__name__} answers {row}, which is not its to answer")
        functions[row.name] = function
    if missing := sorted(set(gateway.methods) - set(functions)):
        raise TypeError(f"{calls.__name__} does not answer {', '.join(missing)} of {gateway.__name__}")
    kinds, codes = tuple(refusals or ()), refusals or {}

    def handler(row: Method[Any, Any], function: Callable[[S, Any], Any]) -> Handler:
        async def handle(call: RpcRequest) -> Mapping[str, Any]:
            callee = target(call)
            if (checked := check(row, call)) is not None:
                await checked
            try:
                answer = function(callee, row.request.from_plain(call.payload))
                if isinstance(answer, Awaitable):
                    answer = await answer
            except kinds as error:
                code = next(code for kind, code in codes.items() if isinstance(error, kind))
                raise RpcFault(code, str(error.args[0] if error.args else error)) from error
            return {} if answer is None else answer.to_plain()

        return handle

    return {name: handler(gateway.methods[name], function) for name, function in functions.items()}


def by_token(token_of: Callable[[RpcRequest], str]) -> Check:
    """Make a check of the callee's token, as the fence of the row demands.

    Args:
        token_of: returns the token of the callee of a call.
    """

    def check(method: Method[Any, Any], call: RpcRequest) -> None:
        if method.fence is Fence.NONE or (method.fence is Fence.CALLEE_IF_KNOWN and not call.token):
            return
        check_token(call, token_of(call))

    return check


def check_token(call: RpcRequest, token: str) -> None:
    """Check that a call carries this token.

    Raises:
        FencedError: the call carries another token.
    """
    if not hmac.compare_digest(token.encode(), call.token.encode()):
        raise FencedError(f"{call.method}: the caller means another leader: its token is not the current one")
