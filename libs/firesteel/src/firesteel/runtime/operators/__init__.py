"""The operators of the runtime: one class for each ``OperatorKind``. Their contract is in ``runtime/operator_base``."""

from __future__ import annotations

from typing import Final

from firesteel.functions.two_phase import TwoPhaseCommitSink
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.columnar import FilterColumns, MapBatches, ProjectColumns
from firesteel.runtime.operators.async_wait import AsyncWaitOperator, LaterResults
from firesteel.runtime.operators.broadcast import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from firesteel.runtime.operators.changelog import ChangelogOperator, ExpandColumns
from firesteel.runtime.operators.collect import CollectAnswer, CollectOperator
from firesteel.runtime.operators.column_aggregates import KeyedColumns, RunningAggregates
from firesteel.runtime.operators.column_windows import ColumnWindowOperator, TimedColumns
from firesteel.runtime.operators.connected import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from firesteel.runtime.operators.enumerator import EnumeratorOperator
from firesteel.runtime.operators.epochs import EpochOperator
from firesteel.runtime.operators.interval_join import IntervalJoinOperator
from firesteel.runtime.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    ReduceOperator,
)
from firesteel.runtime.operators.process_batches import ProcessBatches
from firesteel.runtime.operators.session_windows import SessionWindowOperator
from firesteel.runtime.operators.sink_stage import SinkStageOperator
from firesteel.runtime.operators.sinks import Consumer, PrintOperator, SinkFunctionOperator, SinkOperator
from firesteel.runtime.operators.stateless import (
    CoerceOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from firesteel.runtime.operators.two_phase import TwoPhaseSinkOperator
from firesteel.runtime.operators.watermarks import WatermarksOperator
from firesteel.runtime.operators.windows import AlignedWindowOperator, WindowOperator

__all__ = [
    "OPERATORS",
    "CoerceOperator",
    "CollectAnswer",
    "CollectOperator",
    "Consumer",
    "EnumeratorOperator",
    "KeyedColumns",
    "LaterResults",
    "SinkOperator",
    "TimedColumns",
    "TwoPhaseSinkOperator",
    "WatermarksOperator",
    "create_operator",
]

OPERATORS: Final[dict[OperatorKind, type[Operator]]] = {
    OperatorKind.SOURCE: CoerceOperator,
    OperatorKind.ENUMERATOR: EnumeratorOperator,
    OperatorKind.MAP: MapOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: KeyedProcessOperator,
    OperatorKind.KEYED_MAP: KeyedMapOperator,
    OperatorKind.KEYED_FLAT_MAP: KeyedFlatMapOperator,
    OperatorKind.KEYED_FILTER: KeyedFilterOperator,
    OperatorKind.COLUMNS_FILTER: FilterColumns,
    OperatorKind.COLUMNS_PROJECT: ProjectColumns,
    OperatorKind.COLUMNS_MAP: MapBatches,
    OperatorKind.COLUMNS_AGGREGATE: RunningAggregates,
    OperatorKind.COLUMNS_WINDOW: ColumnWindowOperator,
    OperatorKind.COLUMNS_PROCESS: ProcessBatches,
    OperatorKind.COLUMNS_EXPAND: ExpandColumns,
    OperatorKind.COLUMNS_CHANGELOG: ChangelogOperator,
    OperatorKind.COLUMNS_CO_CHANGELOG: ChangelogOperator,
    OperatorKind.COLUMNS_EPOCH: EpochOperator,
    OperatorKind.REDUCE: ReduceOperator,
    OperatorKind.WATERMARKS: WatermarksOperator,
    OperatorKind.CO_MAP: CoMapOperator,
    OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
    OperatorKind.CO_PROCESS: CoProcessOperator,
    OperatorKind.KEYED_CO_MAP: KeyedCoMapOperator,
    OperatorKind.KEYED_CO_FLAT_MAP: KeyedCoFlatMapOperator,
    OperatorKind.KEYED_CO_PROCESS: KeyedCoProcessOperator,
    OperatorKind.WINDOW: WindowOperator,
    OperatorKind.ALIGNED_WINDOW: AlignedWindowOperator,
    OperatorKind.SESSION_WINDOW: SessionWindowOperator,
    OperatorKind.INTERVAL_JOIN: IntervalJoinOperator,
    OperatorKind.BROADCAST_PROCESS: BroadcastProcessOperator,
    OperatorKind.KEYED_BROADCAST_PROCESS: KeyedBroadcastProcessOperator,
    OperatorKind.ASYNC_WAIT: AsyncWaitOperator,
    OperatorKind.SINK_STAGE: SinkStageOperator,
    OperatorKind.SINK: SinkOperator,
    OperatorKind.SINK_FUNCTION: SinkFunctionOperator,
    OperatorKind.PRINT: PrintOperator,
    OperatorKind.COLLECT: CollectOperator,
}
"""The class of each kind. SOURCE stands for what happens to a source's records after the reader gave them."""


def create_operator(spec: OperatorSpec) -> Operator:
    """A new operator for a specification."""
    if spec.kind is OperatorKind.SINK and isinstance(spec.function, TwoPhaseCommitSink):
        return TwoPhaseSinkOperator(spec)
    return OPERATORS[spec.kind](spec)
