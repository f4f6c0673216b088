from __future__ import annotations

import pickle
from functools import reduce
from typing import Any, NamedTuple

import pytest

from firesteel.common import Row, Types
from firesteel.core.errors import GraphError
from firesteel.datastream import StreamExecutionEnvironment
from tests.unit.datastream.fakes import FakeExecutor


class Point(NamedTuple):
    x: int
    y: int


def run(method: str, position: int | str, records: list[Any], type_info: Any = None) -> list[Any]:
    """The results after each record, by the function that travels to the slot."""
    executor = FakeExecutor()
    env = StreamExecutionEnvironment(executor=executor)
    stream = getattr(env.from_collection(records, type_info).key_by(str), method)(position)
    env.execute()
    operator = list(executor.graphs[0].nodes.values())[-1].operator
    assert operator.name == stream.get_name()
    function = pickle.loads(pickle.dumps(operator.function))
    return [reduce(function, records[: n + 1]) for n in range(len(records))]


TUPLES = [("a", 3), ("b", 1), ("c", 5), ("d", 1)]


NAN = float("nan")


@pytest.mark.parametrize("records", [[2.0, NAN, 1.0], [NAN, 2.0, 1.0], [1.0, 2.0, NAN]])
def test_nan_is_above_all_other_numbers(records: list[float]) -> None:
    pairs = [("a", number) for number in records]
    for method, best in (("min", "1.0"), ("max", "nan"), ("min_by", "1.0"), ("max_by", "nan")):
        last = run(method, 1, pairs)[-1]
        assert str(last[1]) == best, method


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sum", [("a", 3), ("a", 4), ("a", 9), ("a", 10)]),
        ("min", [("a", 3), ("a", 1), ("a", 1), ("a", 1)]),
        ("max", [("a", 3), ("a", 3), ("a", 5), ("a", 5)]),
        ("min_by", [("a", 3), ("b", 1), ("b", 1), ("b", 1)]),
        ("max_by", [("a", 3), ("a", 3), ("c", 5), ("c", 5)]),
    ],
)
def test_running_aggregations(method: str, expected: list[tuple[str, int]]) -> None:
    assert run(method, 1, TUPLES) == expected
    assert run(method, 1, [Row(*t) for t in TUPLES]) == [Row(*t) for t in expected]
    assert run(method, 1, [list(t) for t in TUPLES]) == [list(t) for t in expected]
    named = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])
    rows = [Row(k=k, v=v) for k, v in TUPLES]
    assert run(method, "v", rows, named) == [Row(k=k, v=v) for k, v in expected]
    assert rows == [Row(k=k, v=v) for k, v in TUPLES], "records are not changed in place"


@pytest.mark.parametrize(
    ("method", "expected"), [("sum", [3, 4, 9]), ("min", [3, 1, 1]), ("max_by", [3, 3, 5]), ("min_by", [3, 1, 1])]
)
def test_plain_numbers(method: str, expected: list[int]) -> None:
    assert run(method, 0, [3, 1, 5], Types.INT()) == expected


def test_named_tuples_stay_what_they_are() -> None:
    assert run("sum", 1, [Point(1, 2), Point(3, 4)]) == [Point(1, 2), Point(1, 6)]
    assert type(run("sum", 1, [Point(1, 2), Point(3, 4)])[1]) is Point


@pytest.mark.parametrize("method", ["min", "max", "min_by", "max_by"])
def test_the_first_of_equals_stays(method: str) -> None:
    assert [type(value) for value in run(method, 0, [1, 1.0])] == [int, int]
    assert [type(value) for value in run(method, 0, [1.0, 1])] == [float, float]


@pytest.mark.parametrize(
    ("position", "type_info", "error", "message"),
    [
        (2.0, None, TypeError, "the position or name of a field, not float"),
        (True, None, TypeError, "the position or name of a field, not bool"),
        (2, Types.TUPLE([Types.INT(), Types.INT()]), ValueError, "has 2 fields, from 0"),
        (-1, Types.TUPLE([Types.INT()]), ValueError, "has 1 field, from 0"),
        (1, Types.INT(), ValueError, "Integer has 1 field"),
        ("x", Types.TUPLE([Types.INT()]), TypeError, "whose fields have no names"),
        ("x", Types.ROW_NAMED(["y"], [Types.INT()]), ValueError, r"has the fields \['y'\]"),
    ],
)
@pytest.mark.parametrize("method", ["sum", "min", "max", "min_by", "max_by"])
def test_positions_are_checked(
    env: StreamExecutionEnvironment,
    method: str,
    position: Any,
    type_info: Any,
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        getattr(env.from_collection([], type_info).key_by(str), method)(position)
    with pytest.raises(GraphError, match="the graph is empty"):
        env.execute()
