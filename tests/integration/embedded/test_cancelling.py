"""User code that does not want to end: its job does, and the next one gets the slots."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.client.embedded import stop_embedded_cluster
from firesteel.datastream import MapFunction, RuntimeContext
from tests.integration.embedded.programs import ended, new_environment, until

OPTIONS = {
    "taskmanager__numberOfTaskSlots": "1",
    "task__cancellation__interval": "200 ms",
    "task__cancellation__timeout": "1500 ms",
}


@pytest.fixture(scope="module", autouse=True)
def one_slot() -> Iterator[None]:
    """A cluster with a single slot: the next job needs the one that the cancelled job had."""
    stop_embedded_cluster()
    list(new_environment(1, **OPTIONS).from_collection([1]).execute_and_collect())
    yield
    stop_embedded_cluster()


class Stuck(MapFunction):  # type: ignore[type-arg]
    """Says that it is at work, then does not come back."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def open(self, runtime_context: RuntimeContext) -> None:
        pass

    def map(self, value: Any) -> Any:
        self.mark.touch()
        self.hang()

    def hang(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.mark.with_suffix(".closed").touch()


class Sleeping(Stuck):
    def hang(self) -> None:
        time.sleep(3600)


class Computing(Stuck):
    def hang(self) -> None:
        pow(3, 10**9)


class OnASocket(Stuck):
    def hang(self) -> None:
        one, _other = socket.socketpair()
        one.recv(1)


class Swallowing(Stuck):
    def hang(self) -> None:
        while True:
            try:
                time.sleep(3600)
            except Exception:
                pass


class SwallowingAll(Stuck):
    def hang(self) -> None:
        while True:
            try:
                time.sleep(0.01)
            except:  # noqa: E722
                pass


class BlockingSleep(Sleeping):
    blocking = True


class BlockingSocket(OnASocket):
    blocking = True


class StuckInOpen(Stuck):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.mark.touch()
        time.sleep(3600)


@pytest.mark.parametrize(
    ("function", "within", "closed"),
    [
        (Sleeping, 1.3, True),
        (OnASocket, 1.3, True),
        (BlockingSleep, 4.0, None),
        (BlockingSocket, 4.0, None),
        (StuckInOpen, 1.3, None),
        (Swallowing, 4.0, None),
        (Computing, 4.0, False),
        (SwallowingAll, 4.0, False),
    ],
)
def test_it_ends_canceled_and_the_slot_is_free(
    function: type[Stuck], within: float, closed: bool | None, tmp_path: Path
) -> None:
    env = new_environment(1, **OPTIONS)
    env.from_collection([1, 2, 3]).map(function(tmp_path / "mark")).print()
    job = env.execute_async(function.__name__)
    until((tmp_path / "mark").exists, "the function being at work")
    began = time.monotonic()
    job.cancel().result()
    assert ended(job, 10) == "CANCELED"
    assert time.monotonic() - began < within
    if closed is not None:
        assert (tmp_path / "mark.closed").exists() is closed
    assert list(env.from_collection([4]).map(str).execute_and_collect()) == ["4"]
