"""The operator of interval joins; ``firesteel.windowing.interval`` finds the pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from typing_extensions import override

from firesteel.common.own_copies import own_copy
from firesteel.core.errors import ProgramError
from firesteel.functions.join_functions import ProcessJoinFunction
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.base import is_iterable, not_iterable
from firesteel.runtime.operator_base.context import OperatorContext
from firesteel.runtime.operator_base.timed import TimedTransform
from firesteel.runtime.operators.late_records import LateRecords
from firesteel.state.backend import Timer
from firesteel.windowing.interval import IntervalJoiner
from firesteel.windowing.windows import MIN_TIMESTAMP


class _Context(ProcessJoinFunction.Context):
    """The context of ``ProcessJoinFunction.process_element``: times of both records and of the result."""

    def __init__(self) -> None:
        self.left = self.right = self.result = MIN_TIMESTAMP

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def get_timestamp(self) -> int:
        return self.result


class IntervalJoinOperator(TimedTransform):
    """Calls a function for pairs of records of two keyed streams whose times are near each other.

    The ``extra`` of its specification: ``lower`` and ``upper`` (ms, both included), and ``late_tags`` (tags of the left
    and the right input, or None).

    Attributes:
        late_records: counts the records that came too late and were dropped.
    """

    inputs = 2
    may_tag: ClassVar[bool] = True

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        self._late_tags = spec.extra["late_tags"]
        self._context = _Context()
        self.tagged = False  # turns True with the first side output

    def open(self, context: OperatorContext) -> None:
        """Open the function, then create the joiner, which needs timers and state."""
        super().open(context)
        self.late_records = LateRecords(self.name, context, self.runtime_context(context))
        if any(tag is not None for tag in self._late_tags):
            self.enable_tags()
        buffers = self.keyed.timeline("left-buffer"), self.keyed.timeline("right-buffer")
        self._join = IntervalJoiner(self.spec.extra["lower"], self.spec.extra["upper"], self.timers, buffers)

    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Call the function for each record with every partner that has come before it."""
        stamp, context, join, keyed = self.stamp, self._context, self._join, self.keyed
        function = self.function.process_element
        for value in self.with_keys(records, input_index):
            timestamp = stamp.value
            if join.is_late(timestamp):
                assert timestamp is not None
                tag = self._late_tags[input_index]
                if tag is not None:
                    yield self.side_record((tag, value))
                else:
                    self.late_records.drop(timestamp, self.timers.current_watermark())
                continue
            assert timestamp is not None
            for time, other in join.add(input_index, keyed.key, value, timestamp):
                mine, other = own_copy(value), own_copy(other)  # the buffers hold both records for further pairs
                left, right = (mine, other) if input_index == 0 else (other, mine)
                context.left, context.right = (timestamp, time) if input_index == 0 else (time, timestamp)
                context.result = stamp.value = max(timestamp, time)
                results = function(left, right, context)
                if results is None:
                    continue
                if not is_iterable(results):
                    raise not_iterable("process_element", results)
                for result in results:
                    coerce = self.coerce  # read for each result, as the first side output replaces it
                    if coerce is None:
                        yield result
                    else:
                        yield coerce(result) if result is not None else self.pass_null()

    def on_event_time(self, timer: Timer) -> Iterator[Any]:
        """Remove records that can't have partners any more; there are no results."""
        self._join.on_event_time(timer.namespace, timer.key, timer.timestamp)
        return iter(())

    @override
    def on_processing_time(self, timer: Timer) -> Iterator[Any]:
        raise ProgramError(f"operator {self.name!r} has no processing-time timers")
