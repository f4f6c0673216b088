"""Runs a stage in front of a two-phase sink (``firesteel.functions.sink_stages``)."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from firesteel.common.typeinfo import Types
from firesteel.core.call_each import call_each
from firesteel.core.errors import ProgramError
from firesteel.functions.coroutines import refuse_coroutines
from firesteel.functions.sink_stages import SinkStage, StageFactory
from firesteel.functions.state import ListStateDescriptor
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, TaskWriterContext
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.operators.async_wait import LaterResults
from firesteel.runtime.records.batch import MAX_WATERMARK, Batch, Watermark
from firesteel.runtime.records.rows import to_list

_STATE: Final = ListStateDescriptor("stage-state", Types.PICKLED_BYTE_ARRAY())
_UNSENT: Final = ListStateDescriptor("unsent", Types.PICKLED_BYTE_ARRAY())


class SinkStageOperator(LaterResults):
    """See the module. What could not leave in front of a barrier is part of its state."""

    writes_elsewhere = True
    takes_changes = False

    def __init__(self, spec: OperatorSpec) -> None:
        super().__init__(spec)
        if not isinstance(spec.function, StageFactory):
            raise ProgramError(f"operator {spec.name!r}: {spec.function!r} is not a stage of a sink")
        self._factory = spec.function
        self._stage: SinkStage | None = None
        self._queue: deque[bytes | Watermark] = deque()

    @property
    def stage(self) -> SinkStage:
        """The subtask's, from ``open`` to ``close``."""
        assert self._stage is not None
        return self._stage

    def open(self, context: OperatorContext) -> None:
        """Open key selectors behind it, and go on from the state."""
        super().open(context)
        self._context = TaskWriterContext(self.with_site(context), self.spec.id)
        if self.restored is not None:
            self._context.reached(self.restored.checkpoint_id)
        self._stage = self._factory.create(self._context)
        refuse_coroutines(f"operator {self.name!r}", self._stage)
        self._queue.extend(self.operator_state.get_list_state(_UNSENT).get())
        self._stage.open(list(self.operator_state.get_list_state(_STATE).get()))

    # -- records

    @property
    def writable(self) -> bool:
        return not self._queue

    @property
    def ready(self) -> bool:
        return bool(self._queue)

    @property
    def empty(self) -> bool:
        return not self._queue

    def put(self, batch: Batch) -> None:
        """Hand a batch to the stage."""
        values = batch.values if self.coerce is None else call_each(self.coerce, batch.values)
        self._queue.extend(self.stage.write(values, to_list(batch.timestamps)))

    def put_watermark(self, watermark: Watermark) -> None:
        """Keeps its place; what the stage holds at the end of time goes on before it."""
        if watermark.timestamp >= MAX_WATERMARK:
            self._queue.extend(self.stage.prepare(end_of_input=True))
        self._queue.append(watermark)

    def take(self) -> Batch | Watermark:
        """All that waits up to the next watermark."""
        first = self._queue[0]
        if isinstance(first, Watermark):
            self._queue.popleft()
            return first
        values: list[Any] = []
        while self._queue and not isinstance(self._queue[0], Watermark):
            values.append(self._queue.popleft())
        return Batch(values)

    # -- checkpoints

    def before_barrier(self, checkpoint_id: int) -> None:
        """Give what goes on in front of the barrier."""
        self._context.prepares(checkpoint_id)
        self._queue.extend(self.stage.prepare(end_of_input=False))

    def snapshot_state(self, context: SnapshotContext) -> None:
        """What is left. A blocking source may have given more since ``before_barrier``."""
        self.before_barrier(context.checkpoint_id)
        unsent = [one for one in self._queue if not isinstance(one, Watermark)]
        self.operator_state.get_list_state(_UNSENT).update(unsent)
        self.operator_state.get_list_state(_STATE).update(self.stage.snapshot())
        self._context.reached(context.checkpoint_id)
        super().snapshot_state(context)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        super().checkpoint_complete(checkpoint_id)
        if self._stage is not None:
            self._stage.checkpoint_complete()

    def close(self) -> None:
        stage, self._stage = self._stage, None
        try:
            super().close()
        finally:
            if stage is not None:
                stage.close()
