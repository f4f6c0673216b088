from __future__ import annotations

import pytest

from firesteel.common import Types
from firesteel.datastream import DataStream, StreamExecutionEnvironment
from tests.unit.datastream.fakes import FakeExecutor, environment


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def env(executor: FakeExecutor) -> StreamExecutionEnvironment:
    return environment(executor)


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> DataStream:
    """Typed pairs of text and number."""
    return env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.INT()]))
