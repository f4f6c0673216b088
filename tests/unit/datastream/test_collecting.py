"""Results of ``execute_and_collect``."""

from __future__ import annotations

import sys
import weakref
from typing import Any, cast

import pytest

from firesteel.core.errors import GraphError, JobFailedError
from firesteel.datastream import CloseableIterator, StreamExecutionEnvironment, closeable_iterator
from tests.unit.datastream.fakes import FakeExecutor, submitted


def test_collecting(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.answers = [[1, 2], [], [3], None]
    env.from_collection([9]).print()
    with env.from_sequence(1, 3).execute_and_collect("the job") as results:
        assert results.next() == 1
        assert list(results) == [2, 3]
        assert list(results) == []
        with pytest.raises(StopIteration):
            next(results)
        assert results.get_job_client() is executor.clients[0]
    graph = executor.graphs[0]
    assert graph.name == "the job"
    assert submitted(executor)[-1] == "Sink: Data Stream Collect Sink"
    assert "Sink: Print to Std. Out" in submitted(executor), "what was added before runs along"
    collect = list(graph.nodes.values())[-1]
    assert (collect.parallelism, collect.operator.extra) == (1, {"buffer_bytes": 4 << 20})
    assert executor.clients[0].stream.closed == 1


def test_the_collect_operators_id_is_the_job_graphs(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    from firesteel.graph.chaining import build_job_graph

    env.from_sequence(1, 3).execute_and_collect()
    graph, _ = build_job_graph(executor.graphs[0], job_id="0" * 32, pickle_chain=lambda c: repr(c).encode(), config={})
    assert [v.collects for v in graph.vertices if v.collects] == executor.clients[0].collected


def test_collecting_with_a_limit_gives_a_list_and_lets_the_job_go(
    env: StreamExecutionEnvironment, executor: FakeExecutor
) -> None:
    executor.answers = [[1, 2], [3, 4]]
    assert env.from_sequence(1, 9).execute_and_collect(limit=3) == [1, 2, 3]
    assert executor.clients[0].stream.closed == 1
    executor.answers = [[1], None]
    assert env.from_sequence(1, 9).execute_and_collect(limit=3) == [1]
    with pytest.raises(ValueError, match="the limit must be at least 1"):
        env.from_sequence(1, 9).execute_and_collect(limit=0)
    assert len(executor.graphs) == 2


def test_a_failure_comes_after_the_results_before_it(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.answers = [[1], JobFailedError("late")]
    results = env.from_sequence(1, 9).execute_and_collect()
    assert next(results) == 1
    with pytest.raises(JobFailedError, match="late"):
        next(results)


def test_a_result_whose_own_code_raises_stop_iteration_ends_no_results(
    env: StreamExecutionEnvironment, executor: FakeExecutor
) -> None:
    executor.answers = [[1], StopIteration(), [2], None]
    results = env.from_sequence(1, 9).execute_and_collect()
    assert next(results) == 1
    with pytest.raises(RuntimeError, match="a result raised StopIteration"):
        list(results)


def test_a_refused_collect_leaves_nothing(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    stream = env.from_sequence(1, 9).uid("x").map(str).uid("x")
    with pytest.raises(GraphError, match="have the same uid 'x'"):
        stream.execute_and_collect()
    assert executor.graphs == []
    env.from_sequence(1, 2).print()
    env.execute()
    assert submitted(executor) == ["Source: Sequence Source", "Sink: Print to Std. Out"]


def test_ctrl_c_lets_the_job_go_even_when_the_iterator_is_kept(
    env: StreamExecutionEnvironment, executor: FakeExecutor
) -> None:
    executor.answers = [[1], KeyboardInterrupt()]
    results = env.from_sequence(1, 9).execute_and_collect()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert executor.clients[0].stream.closed == 1
    assert list(results) == []


def test_what_was_read_in_part_goes_on(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    executor.answers = [[1, 2, 3], [], [4, 5], None]
    results = env.from_sequence(1, 9).execute_and_collect()
    assert [value for value, _ in zip(results, range(1), strict=False)] == [1]
    assert next(results) == 3, "zip has taken the second"
    assert results.next() == 4
    results.close()
    assert list(results) == []


@pytest.mark.parametrize("batch", [1, 100])
def test_ctrl_c_between_two_results_leaves_nobody_who_keeps_the_job(batch: int) -> None:
    """The interrupt comes at the first instruction of whatever runs for the next result."""

    class Stream:
        def fetch(self) -> list[int]:
            return list(range(batch))

        def close(self) -> None:
            pass

    armed = False

    def interrupt(frame: Any, event: str, _: Any) -> Any:
        if armed and event == "call" and frame.f_code.co_filename == closeable_iterator.__file__:
            raise KeyboardInterrupt
        return None

    stream = Stream()
    reference = weakref.ref(stream)
    results = [CloseableIterator(stream, cast("Any", None))]
    del stream
    before = sys.gettrace()

    def read() -> None:
        nonlocal armed
        for number, _ in enumerate(results.pop()):
            if number == 150:
                armed = True
                sys.settrace(interrupt)
            assert number < 1000

    with pytest.raises(KeyboardInterrupt) as interrupted:  # which keeps the traceback, as a notebook does
        read()
    sys.settrace(before)
    assert interrupted.tb is not None
    assert reference() is None


def test_a_keyed_stream_is_collected_by_one_subtask(env: StreamExecutionEnvironment, executor: FakeExecutor) -> None:
    """So what one subtask of the source has sent stays in its order."""
    executor.answers = [None]
    env.set_parallelism(4)
    list(env.from_sequence(1, 9).key_by(lambda value: value % 3).execute_and_collect())
    graph = executor.graphs[-1]
    assert {node.parallelism for node in graph.nodes.values() if node.is_source} == {4}
    assert {node.parallelism for node in graph.nodes.values() if not node.is_source} == {1}
