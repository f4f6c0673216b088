"""The buffer of results: offsets, bounds, acknowledgement; and the server of long polls."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from firesteel.core.errors import SerializationError
from firesteel.graph.execution_states import ExecutionState
from firesteel.graph.specs import OperatorKind
from firesteel.runtime.loop.loop import TaskLoop
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.failures import describe_failure
from firesteel.runtime.operators import CollectOperator
from firesteel.runtime.slot.collecting import CollectServer
from firesteel.state.snapshots import SlicedSnapshot
from tests.unit.runtime.support import INFO, ManualClock, spec


def collect_of(buffer_bytes: int = 1000) -> CollectOperator:
    """A new operator, open."""
    operator = CollectOperator(spec(OperatorKind.COLLECT, extra={"buffer_bytes": buffer_bytes}))
    operator.open(OperatorContext(INFO, ManualClock()))
    return operator


def test_results_stay_until_a_later_offset_is_asked_for() -> None:
    collect = collect_of()
    collect.write([1, 2, 3], None)
    for _ in range(2):
        got = collect.fetch(0, 1000)
        assert (got.offset, got.count, got.end, pickle.loads(got.data)) == (0, 3, False, [1, 2, 3])
    got = collect.fetch(2, 1000)
    assert pickle.loads(got.data) == [3]
    with pytest.raises(ValueError, match="holds 2 to 3"):
        collect.fetch(1, 1000)
    with pytest.raises(ValueError, match="holds 2 to 3"):
        collect.fetch(4, 1000)


def test_a_full_buffer_is_not_writable_until_half_is_fetched() -> None:
    woken: list[int] = []
    collect = collect_of(500)
    collect.on_writable = lambda: woken.append(1)
    while collect.writable:
        collect.write(["x" * 90], None)
    assert 3 <= collect.available <= 7
    collect.fetch(0, 10_000)
    assert not woken
    collect.fetch(collect.available, 10_000)
    assert woken == [1]
    assert collect.writable


def test_an_answer_is_about_as_large_as_asked_for_and_never_empty() -> None:
    collect = collect_of(10**6)
    collect.write([str(i) * 500 for i in range(10, 90)], None)
    assert 1 <= collect.fetch(0, 5000).count <= 10
    assert collect.fetch(0, 1).count == 1


def test_the_end_comes_with_the_last_results_and_drains_when_they_are_acknowledged() -> None:
    drained: list[int] = []
    collect = collect_of()
    collect.on_drained = lambda: drained.append(1)
    collect.write([1], None)
    collect.finish()
    assert not collect.drained
    assert collect.fetch(0, 1000).end
    assert not drained
    assert collect.fetch(1, 1).end
    assert drained == [1]
    assert collect.drained


def test_what_plain_pickle_refuses_goes_by_value() -> None:
    collect = collect_of()
    collect.write([lambda: 7], None)
    assert pickle.loads(collect.fetch(0, 10_000).data)[0]() == 7


def test_a_result_that_cannot_be_pickled_says_so() -> None:
    with pytest.raises(SerializationError, match="can't be sent to the client"):
        collect_of().write([threading.Lock()], None)


def test_a_result_behind_the_sample_that_cannot_be_pickled_is_named() -> None:
    collect = collect_of(10**6)
    collect.write([*range(10), *(threading.Lock() if i == 4 else i for i in range(90))], None)
    with pytest.raises(SerializationError, match="can't be sent to the client") as caught:
        collect.fetch(0, 10_000)
    failure = describe_failure(caught.value)
    assert (failure.kind, failure.operator) == ("user", collect.name)
    assert str(failure.record).startswith("<unlocked _thread.lock object")
    assert "the results begin with [<unlocked _thread.lock object" in failure.message


def test_the_client_of_another_run_gets_what_is_left() -> None:
    former = collect_of()
    former.write(["a", "b", "c"], None)
    former.acknowledge(2)
    collect = CollectOperator(spec(OperatorKind.COLLECT))
    collect.take_back([chunk for chunks in SlicedSnapshot([former.outgoing()]) for chunk in chunks])
    collect.open(OperatorContext(INFO, ManualClock(), checkpointing=True))
    for _ in range(2):
        got = collect.fetch(0, 1000)
        assert (got.offset, got.count, pickle.loads(got.data)) == (2, 1, ["c"])
    got = collect.fetch(3, 1000)
    assert (got.offset, got.count) == (3, 0)


class Served:
    """A server with one execution."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = TaskLoop(self.clock)
        self.answers: list[tuple[dict[str, Any], bytes]] = []
        self.server = CollectServer(self.loop, lambda message, data: self.answers.append((message, data)))
        self.collect = collect_of()
        self.errors: list[BaseException] = []
        self.server.serve("v_0_0", [self.collect], self.errors.append)

    def run(self) -> None:
        while self.loop.run_once(block=False):
            pass


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.loop.close()


def test_a_long_poll_waits_for_results(served: Served) -> None:
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    served.run()
    assert served.answers == []
    served.collect.write(["a"], None)
    served.run()
    ((message, data),) = served.answers
    assert (message["request_id"], message["count"], message["end"], message["error"]) == (1, 1, False, None)
    assert pickle.loads(data) == ["a"]


def test_a_long_poll_ends_with_nothing(served: Served) -> None:
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    served.clock.now += 4.9
    served.run()
    assert served.answers == []
    served.clock.now += 0.2
    served.run()
    assert [m["count"] for m, _ in served.answers] == [0]


def test_polls_wait_until_the_results_of_before_are_there(served: Served) -> None:
    before = served.collect
    before.write(["a", "b", "c"], None)
    before.acknowledge(1)
    chunks = [chunk for slice_chunks in SlicedSnapshot([before.outgoing()]) for chunk in slice_chunks]
    served.collect = collect = CollectOperator(spec(OperatorKind.COLLECT))
    served.server.serve("v_0_0", [collect], served.errors.append)
    served.server.request(1, "v_0_0", 2, 1000, 5.0)
    served.server.request(2, "v_0_0", 2, 1000, 0)
    collect.take_back(chunks[:1])
    served.run()
    assert [(m["request_id"], m["count"], m["error"]) for m, _ in served.answers] == [(2, 0, None)]
    collect.open(OperatorContext(INFO, served.clock))
    served.run()
    (message, data) = served.answers[1]
    assert (message["request_id"], message["offset"], message["error"], pickle.loads(data)) == (1, 2, None, ["c"])


def test_a_poll_of_the_client_of_another_run_waits_for_results(served: Served) -> None:
    collect = served.collect
    collect.write(["a"], None)
    collect.acknowledge(1)
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    served.run()
    assert served.answers == []
    collect.write(["b"], None)
    served.run()
    (message, data) = served.answers[0]
    assert (message["offset"], message["error"], pickle.loads(data)) == (1, None, ["b"])


def test_a_result_that_cannot_be_pickled_fails_the_task(served: Served) -> None:
    served.collect.write([*range(10), *(threading.Lock() if i == 4 else i for i in range(90))], None)
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    ((message, _),) = served.answers
    assert "can't be sent to the client" in message["error"]
    assert [type(error) for error in served.errors] == [SerializationError]


def test_results_that_are_not_there_yet_fail_nothing(served: Served) -> None:
    served.server.request(1, "v_0_0", 7, 1000, 5.0)
    assert "the buffer holds 0 to 0" in served.answers[0][0]["error"]
    assert served.errors == []


def test_a_waiting_poll_hears_of_the_end(served: Served) -> None:
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    served.collect.finish()
    served.run()
    assert served.answers[0][0]["end"]


@pytest.mark.parametrize(
    ("state", "end", "error"),
    [(ExecutionState.FINISHED, True, None), (ExecutionState.CANCELED, False, "execution v_0_0 has ended as CANCELED")],
)
def test_after_the_end_of_the_task(served: Served, state: ExecutionState, end: bool, error: str | None) -> None:
    served.server.request(1, "v_0_0", 0, 1000, 5.0)
    served.server.ended("v_0_0", state)
    served.server.request(2, "v_0_0", 0, 1000, 5.0)
    assert [(m["request_id"], m["end"], m["error"]) for m, _ in served.answers] == [(1, end, error), (2, end, error)]


def test_an_unknown_execution_is_an_error(served: Served) -> None:
    served.server.request(1, "other", 0, 1000, 5.0)
    assert "no results" in served.answers[0][0]["error"]
