"""The function of jobs from Kafka to Kafka."""

from __future__ import annotations

from collections.abc import Iterator

from firesteel.common import Types
from firesteel.datastream import KeyedProcessFunction, RuntimeContext
from firesteel.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction[str, str, str]):
    """How often a text has come so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f"{value}: {count}"
