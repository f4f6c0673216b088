"""Functions over pairs and groups of two streams. The names are those of Flink's Java API, in snake case."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from firesteel.functions.functions import Function

__all__ = ["CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction"]

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes one result for each pair of records with the same key in the same window.

    Examples:
        ```python
        from firesteel.datastream import JoinFunction


        class Bill(JoinFunction):  # one.join(other).where(...).equal_to(...).window(...).apply(Bill())
            def join(self, first, second):
                return first["name"], second["price"]


        print(Bill().join({"name": "tea"}, {"price": 3}))
        ```

        ```text
        ('tea', 3)
        ```
    """

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """Returns the result for a pair."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes any number of results for each pair of records with the same key in the same window.

    Examples:
        ```python
        from firesteel.datastream import FlatJoinFunction


        class Affordable(FlatJoinFunction):  # one.join(other).where(...).equal_to(...).window(...).apply(Affordable())
            def join(self, first, second):
                if second["price"] < 10:
                    yield first["name"], second["price"]


        print(list(Affordable().join({"name": "tea"}, {"price": 3})))
        ```

        ```text
        [('tea', 3)]
        ```
    """

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """Returns or yields the results for a pair."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes results from all records with the same key in the same window; one of the groups may be empty.

    Examples:
        ```python
        from firesteel.datastream import CoGroupFunction


        class LeftJoin(CoGroupFunction):
            def co_group(self, first, second):
                others = list(second) or [None]
                yield from ((one, other) for one in first for other in others)


        print(list(LeftJoin().co_group([1], [])))
        ```

        ```text
        [(1, None)]
        ```
    """

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2]) -> Iterable[OUT] | None:
        """Returns or yields the results for the two groups."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Computes the results for each pair of records that an interval join finds.

    Examples:
        ```python
        from firesteel.datastream import ProcessJoinFunction


        class Waited(ProcessJoinFunction):  # left.interval_join(right).between(lower, upper).process(Waited())
            def process_element(self, left, right, ctx):
                yield left["order"], ctx.get_right_timestamp() - ctx.get_left_timestamp()
        ```
    """

    class Context(ABC):
        """Information about the current pair, for ``process_element``. All times are ms since 1970-01-01 UTC."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """Returns the timestamp of the left record."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """Returns the timestamp of the right record."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """Returns the timestamp of the results: the later one of the two records' timestamps."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context) -> Iterable[OUT] | None:
        """Returns or yields the results for a pair."""
