"""Runs a stage in front of a two-phase sink (``firesteel.functions.sink_stages``)."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from typing_extensions import override

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
    """Runs a ``SinkStage``: records go in, committables for the sink behind it come out.

    What the stage has emitted and could not leave in front of a barrier is part of the operator's state.
    """

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
        """The stage of this subtask; it exists from ``open`` to ``close``."""
        assert self._stage is not None
        return self._stage

    def open(self, context: OperatorContext) -> None:
        """Open key selectors of edges behind the stage, then create and restore the stage."""
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
    @override
    def writable(self) -> bool:
        return not self._queue

    @property
    @override
    def ready(self) -> bool:
        return bool(self._queue)

    @property
    @override
    def empty(self) -> bool:
        return not self._queue

    @override
    def put(self, batch: Batch) -> None:
        values = batch.values if self.coerce is None else call_each(self.coerce, batch.values)
        self._queue.extend(self.stage.write(values, to_list(batch.timestamps)))

    def put_watermark(self, watermark: Watermark) -> None:
        """Queue a watermark. In front of the last one the stage emits all it still holds, as no records follow."""
        if watermark.timestamp >= MAX_WATERMARK:
            self._queue.extend(self.stage.prepare(end_of_input=True))
        self._queue.append(watermark)

    def take(self) -> Batch | Watermark:
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
        """Let the stage emit what belongs into this checkpoint, so that it leaves in front of the barrier."""
        self._context.prepares(checkpoint_id)
        self._queue.extend(self.stage.prepare(end_of_input=False))

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Write what could not leave, and the state of the stage."""
        # Once more: a blocking source may have given records since ``before_barrier``.
        self.before_barrier(context.checkpoint_id)
        unsent = [item for item in self._queue if not isinstance(item, Watermark)]
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
