"""Rows of a gateway, and the handlers that answer them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from firesteel.core.errors import FencedError, ProtocolError
from firesteel.protocol.message import Empty, Message, RpcCode, RpcFault
from firesteel.protocol.method import DEFAULT_TIMEOUT, Caller, Fence, Gateway, Method
from firesteel.rpc import RpcRequest, answers, by_token, handlers_of

BY = (Caller.CLIENT,)


@dataclass(frozen=True)
class Number(Message):
    value: int


class CounterGateway(Gateway):
    add = Method(Number, Number, by=BY)
    reset = Method(Empty, by=BY, fence=Fence.NONE)
    register = Method(Number, by=BY, fence=Fence.CALLEE_IF_KNOWN, at_least=60.0)
    wait = Method(Number, Number, by=BY, waits=lambda message: message.value / 1000)


class Counter:
    """Answers them."""

    def __init__(self) -> None:
        self.value = 0

    @answers(CounterGateway.add)
    def add(self, message: Number) -> Number:
        if message.value < 0:
            raise LookupError("nothing is taken away")
        self.value += message.value
        return Number(self.value)

    @answers(CounterGateway.reset)
    async def start_again(self, _: Empty) -> None:
        self.value = 0

    @answers(CounterGateway.register)
    def register(self, message: Number) -> None:
        self.value = message.value

    @answers(CounterGateway.wait)
    async def wait(self, message: Number) -> Number:
        return message


class Direct:
    """Carries calls to a counter, as JSON."""

    def __init__(self) -> None:
        self.counter = Counter()
        self.timeouts: list[float] = []
        refusals: dict[type[Exception], RpcCode] = {LookupError: RpcCode.REFUSED}
        self._handlers = handlers_of(
            CounterGateway, Counter, lambda _: self.counter, by_token(lambda _: "now"), refusals
        )

    async def call(
        self, base_url: str, method: str, payload: Mapping[str, Any], token: str = "", timeout: float = DEFAULT_TIMEOUT
    ) -> dict[str, Any]:
        self.timeouts.append(timeout)
        answer = await self._handlers[method](RpcRequest(method, "1", token, json.loads(json.dumps(payload)), {}))
        return dict(json.loads(json.dumps(answer)))


def test_a_row_and_its_handler_are_all_that_a_call_needs() -> None:
    async def scenario() -> None:
        gateway = CounterGateway(Direct(), "http://counter", "now")
        assert await gateway.add(Number(2)) == Number(2)
        total: Number = await gateway.add(Number(3))
        assert total == Number(5)
        await gateway.reset()
        assert await gateway.add(Number(1)) == Number(1)
        with pytest.raises(RpcFault, match="nothing is taken away") as refused:
            await gateway.add(Number(-1))
        assert refused.value.code is RpcCode.REFUSED

    asyncio.run(scenario())


def test_callers_and_handlers_are_checked_against_the_row() -> None:
    """By mypy: an unused comment would be an error."""
    gateway = CounterGateway(Direct(), "http://counter", "now")

    async def wrong() -> None:
        await gateway.add(Empty())  # type: ignore[arg-type]
        await gateway.add()  # type: ignore[call-arg]
        text: str = await gateway.add(Number(1))  # type: ignore[assignment]
        assert text

    class Wrong:
        @answers(CounterGateway.add)  # type: ignore[arg-type]
        def add(self, message: Empty) -> Number:
            return Number(0)

        @answers(CounterGateway.add)  # type: ignore[arg-type]
        async def add_later(self, message: Number) -> None: ...

    assert wrong.__name__, Wrong.__name__


def test_fences_stand_in_the_row() -> None:
    async def scenario() -> None:
        old = CounterGateway(Direct(), "http://counter", "a former one")
        for call in (old.add, old.register):
            with pytest.raises(FencedError, match="another leader"):
                await call(Number(1))
        await old.reset()
        stranger = CounterGateway(Direct(), "http://counter")
        await stranger.register(Number(1))
        with pytest.raises(FencedError, match="another leader"):
            await stranger.add(Number(1))

    asyncio.run(scenario())


def test_an_answer_is_waited_for_as_long_as_the_row_says() -> None:
    async def scenario() -> None:
        channel = Direct()
        gateway = CounterGateway(channel, "http://counter", "now", timeout=5.0)
        await gateway.add(Number(1))
        await gateway.register(Number(1))
        await gateway.wait(Number(1500))
        assert channel.timeouts == [5.0, 60.0, 6.5]

    asyncio.run(scenario())


def test_an_answer_of_another_kind_is_no_answer() -> None:
    class Strange(Direct):
        async def call(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"value": "many"}

    with pytest.raises(ProtocolError, match=r"Number\.value: expected `int`, got `str`"):
        asyncio.run(CounterGateway(Strange(), "http://counter").add(Number(1)))


def test_each_row_has_one_handler() -> None:
    class Half:
        @answers(CounterGateway.add)
        def add(self, message: Number) -> Number:
            return message

    class Twice(Counter):
        @answers(CounterGateway.add)
        def add_more(self, message: Number) -> Number:
            return message

    class OtherGateway(Gateway):
        add = Method(Number, Number, by=BY)

    check = by_token(lambda _: "")
    with pytest.raises(TypeError, match="Half does not answer register, reset, wait of CounterGateway"):
        handlers_of(CounterGateway, Half, lambda _: Half(), check)
    with pytest.raises(TypeError, match="answers Method"):
        handlers_of(CounterGateway, Twice, lambda _: Twice(), check)
    with pytest.raises(TypeError, match="which is not its to answer"):
        handlers_of(OtherGateway, Half, lambda _: Half(), check)
