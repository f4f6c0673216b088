"""Metrics of functions: counters, gauges, meters and distributions, in groups. PyFlink's names and signatures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

__all__ = ["Counter", "Distribution", "Meter", "MetricGroup"]

USER_METRICS = "user"
"""Field of a task's report with the metrics of user functions: ``<operator>.<group>.<name>`` -> number or text."""
USER_COUNTERS = "user_counters"
"""Field of a task's report with the ids of the user metrics that are counters: the REST API's accumulators."""
OPERATORS = "operators"
"""Field of a task's report with the metrics of a chain's operators: operator name -> ``OPERATOR_METRICS``."""
OPERATOR_METRICS = (
    "numRecordsIn",
    "numRecordsOut",
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    "accumulateOwnTimeMs",
    "ownTimeMsPerSecond",
)
"""Own time is that in which the operator itself worked, without those in front of it or behind it in the chain."""
HOT_KEYS = "hot_keys"
"""Field of a task's report: of each keyed output the largest key, without its name.

A list of mappings: ``target`` (id of the vertex that reads), ``share`` of the records that have this key, ``subtask``
to which they go, ``records``: about the number of records of the last minute.
"""
LATENCIES = "latencies"
"""Field of a task's report, if the job has latency markers: from which sources they came, and how long they took.

A list of mappings: ``source`` (id of its vertex), ``markers``: number of all of them, ``buckets``: pairs of a bucket
(``firesteel.core.latency_histogram``) and how many of the latest markers are in it.
"""
WATERMARK_PROGRESS = "watermark_progress"
"""Field of a task's report: how far event time is for each input of the task, and what holds it back there.

A list of mappings. ``input`` counts from 1; input 0 stands for watermarks that the task makes itself, of the splits of
a source or in an operator. ``members``, ``idle`` and ``ended`` are numbers of channels or splits; ``all_idle`` tells
whether the input is idle as a whole. Where a channel or split is active: ``watermark`` of the slowest one, ``ahead``
that of the fastest one, ``still_ms`` since the slowest one has risen. The slowest channel has ``edge`` (its index) and
``subtask`` (of the sender); the slowest split has ``split`` (its id, shortened), ``silent_ms`` since its last record
(-1 = there was none), and ``idleness``: whether splits without records become idle.
"""


class Counter(ABC):
    """A number that goes up and down.

    Examples:
        ```python
        from firesteel.datastream import MapFunction


        class Errors(MapFunction):
            def open(self, runtime_context):
                self.errors = runtime_context.get_metrics_group().counter("errors")

            def map(self, value):
                if value < 0:
                    self.errors.inc()
                return value
        ```
    """

    @abstractmethod
    def inc(self, n: int = 1) -> None:
        """Add ``n`` to the count."""

    @abstractmethod
    def dec(self, n: int = 1) -> None:
        """Subtract ``n`` from the count."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the present value of the counter."""


class Meter(ABC):
    """Rate of events, shown as events per second over the meter's time span.

    Examples:
        ```python
        from firesteel.datastream import MapFunction


        class Rated(MapFunction):
            def open(self, runtime_context):
                self.orders = runtime_context.get_metrics_group().meter("orders")  # events a second

            def map(self, value):
                self.orders.mark_event()
                return value
        ```
    """

    @abstractmethod
    def mark_event(self, value: int = 1) -> None:
        """Count that many events as having happened now."""

    @abstractmethod
    def get_count(self) -> int:
        """Return the number of events since the start."""


class Distribution(ABC):
    """Distribution of values, shown as minimum, maximum, mean and percentiles.

    Examples:
        ```python
        from firesteel.datastream import MapFunction


        class Sizes(MapFunction):
            def open(self, runtime_context):
                self.sizes = runtime_context.get_metrics_group().distribution("size")

            def map(self, value):
                self.sizes.update(len(value))
                return value
        ```
    """

    @abstractmethod
    def update(self, value: float) -> None:
        """Add a value to the distribution."""


class MetricGroup(ABC):
    """A group of metrics in the scope of an operator; from ``RuntimeContext.get_metrics_group()``.

    The same name always gives the same metric. The number of metrics that a task reports is bounded
    (``firesteel.metrics.max-per-task``); further ones work, but are not shown.

    Examples:
        ```python
        from firesteel.datastream import MapFunction, StreamExecutionEnvironment


        class Counted(MapFunction):
            def open(self, runtime_context):
                self.words = runtime_context.get_metrics_group().add_group("text").counter("words")

            def map(self, value):
                self.words.inc(len(value.split()))
                return value


        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        print(list(env.from_collection(["to be"]).map(Counted()).execute_and_collect()))
        ```

        ```text
        ['to be']
        ```
    """

    @abstractmethod
    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Returns a group inside of this one; with ``extra`` a pair of key and value."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Returns the counter with this name."""

    @abstractmethod
    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        """Registers a gauge: each report, about once a second, calls ``obj()`` for a number or a short text.

        The call comes from another thread than those of the function's methods, and must not block.
        """

    @abstractmethod
    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Returns the meter with this name."""

    @abstractmethod
    def distribution(self, name: str) -> Distribution:
        """Returns the distribution with this name."""
