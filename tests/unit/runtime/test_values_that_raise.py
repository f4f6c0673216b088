"""Whatever the code of a record or key raises, ``SystemExit`` above all: the failure names the class and the record."""

from __future__ import annotations

import pickle
import random
from enum import Enum
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from firesteel.client.job_client import failure_as_error
from firesteel.core import pickling
from firesteel.core.errors import (
    KeyTypeError,
    ProgramError,
    SerializationError,
    StateMigrationError,
    TaskInterrupt,
    class_name,
)
from firesteel.core.short_repr import short_repr
from firesteel.graph.specs import OutputSpec, PartitionerKind
from firesteel.runtime.chain.partitioners import create_output
from firesteel.runtime.exchange.serialization import MessageReader, MessageWriter
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.sizes import batch_bytes
from firesteel.runtime.slot.user_code import load_chain
from firesteel.state.heap_snapshot import decode
from firesteel.state.keys import NO_KEY
from firesteel.state.pickled_values import read
from firesteel.testing.snapshots import take_snapshot
from tests.unit.runtime.support import INFO, FakeOutput, ManualClock
from tests.unit.runtime.test_value_zoo import EACH_BACKEND, GROUPS, VALUE, keyed_state

RAISED = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, ValueError)
EACH = pytest.mark.parametrize("raised", RAISED)


class Refuses:
    """Raises when it is pickled."""

    def __init__(self, raised: type[BaseException]) -> None:
        self.raised = raised

    def __reduce__(self) -> Any:
        raise self.raised("not me")


class RefusesItsState(Refuses):
    """Raises when its state is asked for."""

    __reduce__ = object.__reduce__

    def __getstate__(self) -> Any:
        raise self.raised("not me")


class Returns(Refuses):
    """Pickles, and raises when it is loaded again."""

    __reduce__ = object.__reduce__

    def __setstate__(self, state: Any) -> None:
        raise state["raised"]("not me")


class Looked(Refuses):
    """Raises when it is looked at."""

    __reduce__ = object.__reduce__

    def __repr__(self) -> str:
        raise self.raised("not me")

    def __len__(self) -> int:
        raise self.raised("not me")


class Letter(Enum):
    """Keys, one of which raises when it is hashed."""

    A = 1
    B = 2
    C = 3

    def __hash__(self) -> int:
        if self.value == 2:
            raise RAISES[-1]("not me")
        return hash(self.value)


RAISES: list[type[BaseException]] = [ValueError]


@EACH
@pytest.mark.parametrize("refusing", [Refuses, RefusesItsState])
def test_a_record_that_refuses_to_be_pickled_is_named(refusing: type[Refuses], raised: type[BaseException]) -> None:
    with pytest.raises(SerializationError) as caught:
        MessageWriter().dumps(Batch([1, {"part": refusing(raised)}]))
    text = str(caught.value)
    assert "a record of type dict can't be sent to another slot" in text
    assert f"its ['part'] (a {class_name(refusing)}) can't be pickled: {raised.__name__}: not me" in text
    assert describe_failure(caught.value, INFO).kind == "user"
    with pytest.raises(SerializationError, match=f"refused: {raised.__name__}: not me"):
        pickling.dumps(refusing(raised), lambda reason: f"refused: {reason}")


@EACH
def test_a_record_that_refuses_to_be_loaded_is_named(raised: type[BaseException]) -> None:
    (data,), _ = MessageWriter().dumps(Batch([Returns(raised)]))
    with pytest.raises(
        SerializationError, match=rf"records from the map can't be unpickled: {raised.__name__}: not me"
    ):
        MessageReader("the map").loads(bytearray(data))
    chunk = pickle.dumps(["key"]) + pickle.dumps([Returns(raised)])
    shown = f"(generator raised )?{raised.__name__}"  # Python's words for a StopIteration
    with pytest.raises(StateMigrationError, match=f"'seen'.*can't be unpickled, .*{shown}"):
        list(read("seen", decode(chunk)))


@EACH
@pytest.mark.parametrize("count", [3, 200])
def test_a_key_that_refuses_is_told_with_its_record(count: int, raised: type[BaseException]) -> None:
    """``StopIteration`` in ``__hash__`` would end a list of channels early, and the rest of the records be lost."""
    RAISES.append(raised)
    spec = OutputSpec(0, 0, PartitionerKind.HASH, key_selector=lambda value: value)
    channels = [FakeOutput(0), FakeOutput(1)]
    output = create_output(spec, "guilty", channels, 128, random.Random(1))
    with pytest.raises(BaseException, match=r"not me|raised StopIteration") as caught:
        output.route(Batch([Letter.A] * count + [Letter.B, Letter.C]))
    failure = describe_failure(caught.value, INFO)
    assert (failure.kind, failure.operator, failure.record) == ("user", "guilty", "<Letter.B: 2>")
    assert failure.error_class == raised.__name__


@EACH
@EACH_BACKEND
def test_state_that_refuses_to_be_pickled_is_named(backend: str, raised: type[BaseException], tmp_path: Path) -> None:
    state = keyed_state(backend, tmp_path, range(GROUPS))
    state.key = "here"

    def write() -> None:  # backends differ in when they pickle
        state.get_state(VALUE).update(Refuses(raised))
        state.key = NO_KEY
        take_snapshot(state.snapshot(), range(GROUPS))

    reason = f"state 'value' of key 'here' can't be serialised: {raised.__name__}: not me"
    with pytest.raises(SerializationError, match=reason):
        write()
    state.close()


@EACH
def test_estimates_texts_and_gauges_raise_nothing(raised: type[BaseException]) -> None:
    assert batch_bytes(Batch([Looked(raised), [Looked(raised)]])) > 0
    assert short_repr(Looked(raised)).startswith("<Looked ")
    registry = MetricRegistry(ManualClock())

    def read_gauge() -> int:
        raise raised("not me")

    registry.group("Map").gauge("bad", read_gauge)
    assert registry.values() == {}


@EACH
def test_a_chain_that_refuses_to_be_loaded_is_refused(raised: type[BaseException]) -> None:
    with pytest.raises(ProgramError, match=f"the operators can't be loaded in the slot: {raised.__name__}: not me"):
        load_chain(cloudpickle.dumps(Returns(raised)))


def test_an_interrupt_of_a_cancelled_task_passes() -> None:
    for action in (
        lambda: MessageWriter().dumps(Batch([Refuses(TaskInterrupt)])),
        lambda: pickling.dumps(Refuses(TaskInterrupt), str),
        lambda: short_repr(Looked(TaskInterrupt)),
        lambda: load_chain(cloudpickle.dumps(Returns(TaskInterrupt))),
    ):
        with pytest.raises(TaskInterrupt):
            action()


@pytest.mark.parametrize("key", [[1], ([1], 2), {"a": 1}])
def test_what_is_wrong_with_a_key_is_said_once(key: Any) -> None:
    spec = OutputSpec(0, 0, PartitionerKind.HASH, key_selector=lambda value: value)
    output = create_output(spec, "guilty", [FakeOutput(0), FakeOutput(1)], 128, random.Random(1))
    with pytest.raises(KeyTypeError) as caught:
        output.route(Batch([1, key]))
    failure = describe_failure(caught.value, INFO)
    assert failure.record == repr(key)
    assert failure.traceback.count("can't be a key") == 1
    assert str(failure_as_error(failure, "1" * 32, "job")).count("can't be a key") == 1
