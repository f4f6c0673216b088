"""The pickled content of a vertex's chain: operator specifications with the user's functions.

Only slots unpickle it (one blob for each vertex, named by its SHA-256). It contains neither a parallelism nor a subtask
index, so that rescaling never changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from firesteel.common.typeinfo import TypeInformation


class OperatorKind(Enum):
    """The operator of the runtime that runs a function."""

    SOURCE = "source"  # function: functions.source.Source
    ENUMERATOR = "enumerator"  # function: the Source whose create_enumerator it calls
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"  # ProcessFunction
    KEYED_PROCESS = "keyed_process"  # KeyedProcessFunction
    KEYED_MAP = "keyed_map"  # MapFunction that may use keyed state
    KEYED_FLAT_MAP = "keyed_flat_map"
    KEYED_FILTER = "keyed_filter"
    COLUMNS_FILTER = "columns_filter"  # function: Expression; extra of COLUMNS_*: input_type, result_type, wrap
    COLUMNS_PROJECT = "columns_project"  # function: Expressions, one for each column of the result
    COLUMNS_MAP = "columns_map"  # from RecordBatch to RecordBatch; extra: timestamp_column
    COLUMNS_AGGREGATE = "columns_aggregate"  # keyed; function: Aggregates
    COLUMNS_WINDOW = "columns_window"  # function: windowing.columnar.ColumnWindowSpec; keys are read from the columns
    COLUMNS_PROCESS = "columns_process"  # keyed; KeyedBatchFunction; extra: timestamp_column
    COLUMNS_EXPAND = "columns_expand"  # ChangelogComputation: any number of rows for each row, which keep its kind
    COLUMNS_CHANGELOG = "columns_changelog"  # keyed; ChangelogComputation; extra: other_input_types
    COLUMNS_CO_CHANGELOG = "columns_co_changelog"  # the same with two inputs
    COLUMNS_EPOCH = "columns_epoch"  # no function; extra: key, the places of columns that tell rows apart
    REDUCE = "reduce"  # keyed running reduce
    WATERMARKS = "watermarks"  # WatermarkStrategy, in the middle of a program
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    KEYED_CO_MAP = "keyed_co_map"
    KEYED_CO_FLAT_MAP = "keyed_co_flat_map"
    KEYED_CO_PROCESS = "keyed_co_process"
    WINDOW = "window"  # function: windowing.spec.WindowSpec
    ALIGNED_WINDOW = "aligned_window"  # the same; windows that are equal for all keys
    SESSION_WINDOW = "session_window"  # the same; sessions that are evaluated at their end
    INTERVAL_JOIN = "interval_join"  # ProcessJoinFunction; extra: lower, upper, late_tags
    ASYNC_WAIT = "async_wait"  # AsyncFunction; extra: ordered, capacity, timeout_ms, retry
    BROADCAST_PROCESS = "broadcast_process"  # BroadcastProcessFunction; extra: broadcast_states
    KEYED_BROADCAST_PROCESS = "keyed_broadcast_process"  # KeyedBroadcastProcessFunction; input 1 has no keys
    SINK_STAGE = "sink_stage"  # functions.sink_stages.StageFactory, in front of a sink
    SINK = "sink"  # functions.sink.Sink
    SINK_FUNCTION = "sink_function"  # SinkFunction subclassed in Python
    PRINT = "print"  # extra: identifier
    COLLECT = "collect"  # extra: buffer_bytes; read by the client through the control channel


class PartitionerKind(Enum):
    """How an edge chooses the channel of a record; the names are Flink's ship strategies."""

    FORWARD = "FORWARD"
    HASH = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    CUSTOM = "CUSTOM"


@dataclass
class OperatorSpec:
    """One operator of a chain.

    Attributes:
        id: operator id, 32 hex digits.
        name: name of the operator, as users see it.
        kind: which operator of the runtime runs it.
        function: a plain callable or an instance of the function class; already checked by the API.
        key_selectors: keyed kinds: for each input the function from a record to its key.
        output_type: declared type of the results (records are coerced to it); None = any Python object.
        strict_integers: integers that do not fit are an error instead of wrapping.
        object_reuse: a record that goes to two operators is not copied for each.
        extra: settings of the kind; all kinds: side_outputs (tag id -> type, for the tags that are read).
    """

    id: str
    name: str
    kind: OperatorKind
    function: Any = None
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    output_type: TypeInformation | None = None
    strict_integers: bool = False
    object_reuse: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class OutputSpec:
    """An edge that leaves the chain.

    Attributes:
        operator_index: index in ``ChainSpec.operators`` of the operator whose results it carries.
        edge: index of the edge in the JobGraph.
        partitioner: how channels are chosen.
        key_selector: HASH: record -> key. CUSTOM: record -> key handed to ``partition``.
        partition: CUSTOM: (key, number of channels) -> channel.
        tag: id of the side output that it carries; None = the operator's results.
        columns: names and positions of the columns that it carries; None = all.
        reader_has_keys: HASH: the target operator needs the key of each record, too.
    """

    operator_index: int
    edge: int
    partitioner: PartitionerKind
    key_selector: Callable[[Any], Any] | None = None
    partition: Callable[[Any, int], int] | None = None
    tag: str | None = None
    columns: tuple[tuple[str, ...], tuple[int, ...]] | None = None
    reader_has_keys: bool = True


@dataclass
class ChainSpec:
    """A vertex's operators: a tree whose root is operator 0.

    Attributes:
        operators: in topological order; 0 is the head.
        children: for each operator, the indices of the operators chained behind it.
        outputs: edges that leave the chain.
        tags: operator index -> id of the side output, for operators that are chained behind a side output.
    """

    operators: list[OperatorSpec]
    children: list[list[int]]
    outputs: list[OutputSpec]
    tags: dict[int, str] = field(default_factory=dict)
