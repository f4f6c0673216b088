"""Runs the operators of windows without a chain: records in batches, watermarks and the clock by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import UnsupportedFeatureError
from firesteel.functions.output_tag import OutputTag
from firesteel.functions.window_functions import AggregateFunction, ProcessWindowFunction
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.loop.metrics import MetricRegistry
from firesteel.runtime.operator_base.context import OperatorContext, Stamp, TaskInfo
from firesteel.runtime.operator_base.side_outputs import SideRecord
from firesteel.runtime.operator_base.timed import TIMER_DONE, TimedTransform
from firesteel.runtime.operators import create_operator
from firesteel.windowing.spec import WindowGathering, WindowSpec

INFO = TaskInfo("1" * 32, "job", "v_0_0", "WINDOW", 0, 1, 128, 0)
LATE: OutputTag[Any] = OutputTag("late")


class Clock:
    """Epoch milliseconds that tests set."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now / 1000

    def epoch_ms(self) -> int:
        return self.now


class Out(NamedTuple):
    """A result with its timestamp, or a late record."""

    value: Any
    timestamp: int | None
    late: bool = False


class Sum(AggregateFunction[Any, Any, Any]):
    """Sum and number of the second fields, in an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator[0] += value[1]
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, int]:
        return accumulator[0], accumulator[1]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


def add_values(first: Any, second: Any) -> Any:
    """Reduces (key, number) records."""
    return first[0], first[1] + second[1]


class Everything(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key, window, and all that the window holds."""

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterator[Any]:
        window = context.window()
        place = (window.start, window.end) if hasattr(window, "start") else getattr(window, "id", "all")
        yield key, place, list(elements)


class Rig:
    """One operator.

    Args:
        function: a ``WindowSpec``, or what the kind takes.
        kind: ``WINDOW`` runs the general core, also where the windows are aligned.
    """

    def __init__(
        self,
        function: Any,
        kind: OperatorKind = OperatorKind.WINDOW,
        *,
        key: Callable[[Any], Any] = lambda value: value[0],
        inputs: int = 1,
        output_type: TypeInformation | None = None,
        info: TaskInfo = INFO,
        before_open: Callable[[Any], None] = lambda operator: None,
        **extra: Any,
    ) -> None:
        self.clock = Clock()
        self.stamp = Stamp()
        spec = OperatorSpec("a" * 32, "WINDOW", kind, function, (key,) * inputs, output_type=output_type, extra=extra)
        operator = create_operator(spec)
        assert isinstance(operator, TimedTransform)
        self.operator: Any = operator
        before_open(operator)
        self.metrics = MetricRegistry(self.clock)
        operator.open(OperatorContext(info, self.clock, self.stamp, metrics=self.metrics))

    def records(self, records: Iterable[tuple[Any, int | None]], side: int = 0) -> list[Out]:
        """Give a batch of (record, timestamp)."""

        def stamped() -> Iterator[Any]:
            for value, self.stamp.value in records:
                yield value

        return self._collect(self.operator.apply(stamped(), side))

    def watermark(self, time: int) -> list[Out]:
        """Event time has come so far."""
        return self._collect(self.operator.advance_watermark(time))

    def time(self, now: int) -> list[Out]:
        """The clock has come so far."""
        self.clock.now = now
        return self._collect(self.operator.advance_processing_time(now))

    def _collect(self, results: Iterator[Any]) -> list[Out]:
        outs = []
        for result in results:
            if result is TIMER_DONE:
                continue
            late = isinstance(result, SideRecord)
            outs.append(Out(result.value if late else result, self.stamp.value, late))
        return outs

    @property
    def entries(self) -> int:
        """How much state and how many timers there are."""
        keyed, timers = self.operator.keyed, self.operator.heap_timers
        return (
            sum(len(part.table) for part in keyed._parts.values())
            + sum(len(panes) for panes in keyed.table("window-contents").values())
            + len(timers.event)
            + len(timers.processing)
        )


def spec_of(assigner: Any, trigger: Any = None, gathering: str = "all", **more: Any) -> WindowSpec:
    """A window operation that gives key, window and contents."""
    functions = {"all": None, "reduce": add_values, "aggregate": Sum()}
    more.setdefault("window_function", Everything())
    return WindowSpec(
        assigner=assigner,
        trigger=trigger or assigner.get_default_trigger(None),
        gathering=WindowGathering(gathering),
        gather_function=functions[gathering],
        **more,
    )


__all__ = [
    "INFO",
    "LATE",
    "Clock",
    "Everything",
    "Out",
    "Rig",
    "Sum",
    "UnsupportedFeatureError",
    "add_values",
    "spec_of",
]
