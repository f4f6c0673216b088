"""How many tasks a stage gets, and which partitions they read: what ``StageTasks.java`` decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from firesteel.spark.java import find_java
from firesteel.spark.own_classes import JAR
from tests.examples import examples

Starts = Callable[[list[int], int, int, int], list[int]]
KB = 1024


@pytest.fixture(scope="module")
def starts() -> Iterator[Starts]:
    """The function, in a JVM of its own."""
    import pyspark

    jars = f"{pyspark.__path__[0]}/jars/*"
    port, token = launch_gateway(
        classpath=f"{JAR}:{jars}", java_path=str(find_java().executable), enable_auth=True, die_on_exit=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))

    def call(sizes: list[int], least: int, most: int, volume: int) -> list[int]:
        array = gateway.new_array(gateway.jvm.long, len(sizes))
        for number, size in enumerate(sizes):
            array[number] = size
        return list(gateway.jvm.firesteel.spark.StageTasks.starts(array, least, most, volume))

    yield call
    gateway.shutdown()


def loads(sizes: list[int], begins: list[int]) -> list[int]:
    return [sum(sizes[a:b]) for a, b in pairwise([*begins, len(sizes)])]


@pytest.mark.parametrize(
    ("sizes", "least", "most", "expected"),
    [
        ([0, 0, 0], 1, 3, [0]),  # one has to look
        ([5, 0, 0], 2, 3, [0]),  # none is started for nothing
        ([1, 1, 1, 1], 1, 4, [0]),  # small ones are read together
        ([KB, KB, KB, KB], 1, 4, [0, 1, 2, 3]),
        ([KB, KB, KB, KB], 1, 2, [0, 2]),
        ([1, 1, 1, 1], 2, 4, [0, 2]),
        ([9 * KB, 1, 1, 1], 1, 2, [0, 1]),  # the large one is alone
    ],
)
def test_examples(starts: Starts, sizes: list[int], least: int, most: int, expected: list[int]) -> None:
    assert starts(sizes, least, most, KB) == expected


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 5), st.integers(1, 60))
def test_rules(starts: Starts, sizes: list[int], least: int, more: int, volume: int) -> None:
    most = least + more
    begins = starts(sizes, least, most, volume)
    filled = sum(size > 0 for size in sizes)
    assert begins[0] == 0
    assert begins == sorted(set(begins))
    assert len(begins) <= max(1, min(most, filled))
    task_loads = loads(sizes, begins)
    assert all(task_loads) or filled == 0, "no task is empty"
    count = max(1, min(filled, most, max(least, -(-sum(sizes) // volume))))
    assert len(begins) <= count
    assert max(task_loads) == best(tuple(sizes), count), "the largest task is as small as can be"


def best(sizes: tuple[int, ...], count: int) -> int:
    """The smallest possible size of the largest of so many runs; by trying."""
    if count == 1:
        return sum(sizes)
    return min(max(sum(sizes[:cut]), best(sizes[cut:], count - 1)) for cut in range(len(sizes) + 1))
