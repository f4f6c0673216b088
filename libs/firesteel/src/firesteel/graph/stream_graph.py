"""The StreamGraph: a program's operators and how records pass between them, before chaining.

The API builds `Transformation` objects; each names its inputs as `StreamInput`. Unions and partitionings are no
operators: they only say where an input's records come from and how they are spread, and become edges here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from firesteel.common.typeinfo import TypeInformation
from firesteel.core.errors import GraphError
from firesteel.graph.key_groups import MAX_MAX_PARALLELISM, default_max_parallelism
from firesteel.graph.specs import OperatorKind, OperatorSpec, PartitionerKind

DEFAULT_SLOT_SHARING_GROUP: Final = "default"
DEFAULT_JOB_NAME: Final = "Flink Streaming Job"
UNSET: Final = -1

SINK_KINDS: Final = frozenset({OperatorKind.SINK, OperatorKind.SINK_FUNCTION, OperatorKind.PRINT, OperatorKind.COLLECT})


class ChainingStrategy(Enum):
    """Whether an operator may be chained with its neighbours."""

    ALWAYS = "ALWAYS"
    NEVER = "NEVER"
    HEAD = "HEAD"  # not behind another operator, but others behind it
    HEAD_WITH_SOURCES = "HEAD_WITH_SOURCES"  # like HEAD, but behind a source


@dataclass(frozen=True, eq=False)
class StreamInput:
    """Records of an operator and how they are spread.

    Attributes:
        source: the operator whose records are read.
        partitioner: how they are spread; None = FORWARD where the parallelisms agree, else REBALANCE.
        key_selector: HASH and CUSTOM: record -> key.
        partition: CUSTOM: (key, number of channels) -> channel.
        output_tag: id of the side output that is read; None = the operator's results.
    """

    source: Transformation
    partitioner: PartitionerKind | None = None
    key_selector: Callable[[Any], Any] | None = None
    partition: Callable[[Any, int], int] | None = None
    output_tag: str | None = None


@dataclass(eq=False)
class Transformation:
    """An operator as the program describes it; the program may still change it until the graph is made.

    Attributes:
        id: rises in the order of creation, so that inputs have smaller ids.
        name, kind, function, key_selectors, extra: as in ``OperatorSpec``.
        inputs: one tuple for each input of the operator; more than one element is a union.
        coerce_to: declared type that results are brought to; None = results stay as they are.
        parallelism, max_parallelism, buffer_timeout_ms: ``UNSET`` (or None) takes the environment's.
        own_parallelism: the program has set the parallelism for this operator.
        non_parallel: the parallelism is 1 and can't be changed.
        internal: made by the API itself; needs no uid.
        stage_of: the sink that this operator is a stage of; it takes its settings from the sink.
        alone: a sink with one subtask; the parallelism that the program sets is that of its stages.
    """

    id: int
    name: str
    kind: OperatorKind
    function: Any = None
    inputs: tuple[tuple[StreamInput, ...], ...] = ()
    key_selectors: tuple[Callable[[Any], Any], ...] = ()
    coerce_to: TypeInformation | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    parallelism: int = UNSET
    max_parallelism: int = UNSET
    buffer_timeout_ms: int | None = None
    non_parallel: bool = False
    internal: bool = False
    uid: str | None = None
    uid_hash: str | None = None
    description: str = ""
    slot_sharing_group: str | None = None
    chaining_strategy: ChainingStrategy = ChainingStrategy.ALWAYS
    own_parallelism: bool = False
    stage_of: Transformation | None = None
    alone: bool = False

    def settled(self) -> Transformation:
        """Return the operator with its final settings: a stage takes those of its sink."""
        sink = self.stage_of
        if sink is None:
            return replace(self, non_parallel=True, max_parallelism=1) if self.alone else self
        return replace(
            self,
            name=f"{sink.name}: {self.name}",
            parallelism=sink.parallelism,
            max_parallelism=1 if self.non_parallel else sink.max_parallelism,
            non_parallel=self.non_parallel or sink.non_parallel,
            buffer_timeout_ms=sink.buffer_timeout_ms,
            uid=None if sink.uid is None else f"{sink.uid}: {self.name}",
            slot_sharing_group=sink.slot_sharing_group,
        )


@dataclass(frozen=True)
class GraphSettings:
    """Settings of the environment for all operators.

    Attributes:
        job_name: name of the job, as users see it.
        parallelism: parallelism of operators that set none.
        max_parallelism: the same for the maximum; ``UNSET`` = derived from the parallelism.
        buffer_timeout_ms: 0 = send each record at once, -1 = send only full batches.
        chaining: operators may be chained.
        chain_different_max_parallelism: operators may be chained whose maximum parallelisms differ.
        auto_generate_uids: operators without a uid get an id from their place in the graph.
        strict_integers: integers that do not fit their declared type are an error instead of wrapping.
        object_reuse: ``pipeline.object-reuse``.
    """

    parallelism: int
    job_name: str = DEFAULT_JOB_NAME
    max_parallelism: int = UNSET
    buffer_timeout_ms: int = 100
    chaining: bool = True
    chain_different_max_parallelism: bool = True
    auto_generate_uids: bool = True
    strict_integers: bool = False
    object_reuse: bool = False


@dataclass(frozen=True, eq=False)
class StreamEdge:
    """Connection from a node (``source``) to one input of another node (``target``); both are ids."""

    source: int
    target: int
    input_index: int
    partitioner: PartitionerKind
    buffer_timeout_ms: int
    key_selector: Callable[[Any], Any] | None = None
    partition: Callable[[Any, int], int] | None = None
    output_tag: str | None = None


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of its source's records that an edge carries.

    Attributes:
        names: names of these columns; None = all.
        indexes: their positions in the source's records.
        key_selector: the edge's key selector, for records with these columns only.
    """

    names: tuple[str, ...] | None
    indexes: tuple[int, ...]
    key_selector: Callable[[Any], Any] | None


@dataclass(eq=False)
class StreamNode:
    """An operator with all settings decided that do not depend on chaining.

    Attributes:
        id: id of its transformation.
        operator: specification of the operator; its ``id`` is empty until the JobGraph is made.
        non_parallel: the parallelism is 1 and can't be changed.
        adapts: the program has not set the parallelism, so batch mode may choose a smaller one.
    """

    id: int
    operator: OperatorSpec
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    chaining_strategy: ChainingStrategy
    buffer_timeout_ms: int
    uid: str | None = None
    uid_hash: str | None = None
    description: str = ""
    internal: bool = False
    non_parallel: bool = False
    adapts: bool = False
    in_edges: list[StreamEdge] = field(default_factory=list)
    out_edges: list[StreamEdge] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def is_source(self) -> bool:
        """Whether the operator reads from outside the job."""
        return self.operator.kind is OperatorKind.SOURCE

    @property
    def is_sink(self) -> bool:
        """Whether the operator writes records out of the job."""
        return self.operator.kind in SINK_KINDS


@dataclass
class StreamGraph:
    """A program's graph.

    Attributes:
        name: name of the job.
        nodes: nodes by id; each stands behind the nodes that it reads.
        chaining, chain_different_max_parallelism, auto_generate_uids: as in ``GraphSettings``.
        edge_columns: what edges carry that leave columns out.
    """

    name: str
    nodes: dict[int, StreamNode]
    chaining: bool = True
    chain_different_max_parallelism: bool = True
    auto_generate_uids: bool = True
    edge_columns: dict[StreamEdge, EdgeColumns] = field(default_factory=dict)

    @property
    def edges(self) -> list[StreamEdge]:
        """All edges, in the order of their targets."""
        return [edge for node in self.nodes.values() for edge in node.in_edges]

    def is_chainable(self, edge: StreamEdge) -> bool:
        """Whether the edge's two operators run in one chain (Flink's rules for pipelined exchanges)."""
        up, down = self.nodes[edge.source], self.nodes[edge.target]
        return (
            self.chaining
            and len(down.in_edges) == 1
            and edge.partitioner is PartitionerKind.FORWARD  # so their parallelisms are equal
            and up.slot_sharing_group == down.slot_sharing_group
            and up.chaining_strategy is not ChainingStrategy.NEVER
            and (
                down.chaining_strategy is ChainingStrategy.ALWAYS
                or (down.chaining_strategy is ChainingStrategy.HEAD_WITH_SOURCES and up.is_source)
            )
            and (self.chain_different_max_parallelism or up.max_parallelism == down.max_parallelism)
        )

    @classmethod
    def from_transformations(cls, ends: Iterable[Transformation], settings: GraphSettings) -> StreamGraph:
        """Make the graph of these transformations and of all operators that they read, directly or not.

        Raises:
            GraphError: it is empty; an operator is not connected; a parallelism is above the maximum; ``forward()``
                stands between different parallelisms.
        """
        graph = cls(
            settings.job_name,
            {},
            settings.chaining,
            settings.chain_different_max_parallelism,
            settings.auto_generate_uids,
        )
        used = reachable(ends)
        if not used:
            raise GraphError(
                "the graph is empty: no operator or sink was added since the environment was made or last executed; "
                "add a source and what reads it (print(), sink_to(), add_sink()) before execute()"
            )
        for transformation in sorted(used.values(), key=lambda t: t.id):
            graph._add(transformation, settings)
        return graph

    def _add(self, t: Transformation, settings: GraphSettings) -> None:
        t = t.settled()
        _check_connected(t)
        parallelism = settings.parallelism if t.parallelism == UNSET else t.parallelism
        if t.non_parallel:
            parallelism = 1
        limit = settings.max_parallelism if t.max_parallelism == UNSET else t.max_parallelism
        if limit != UNSET and parallelism > limit:
            raise GraphError(
                f"operator {display_name(t)!r}: parallelism {parallelism} is above its max parallelism {limit}; "
                "lower the one with set_parallelism() or raise the other with set_max_parallelism()"
            )
        if limit == UNSET and parallelism > MAX_MAX_PARALLELISM:
            raise GraphError(
                f"operator {display_name(t)!r}: parallelism {parallelism} is above {MAX_MAX_PARALLELISM}, the largest "
                "maximum parallelism; lower it with set_parallelism()"
            )
        node = StreamNode(
            id=t.id,
            operator=OperatorSpec(
                id="",
                name=display_name(t),
                kind=t.kind,
                function=t.function,
                key_selectors=t.key_selectors,
                output_type=t.coerce_to,
                strict_integers=settings.strict_integers,
                object_reuse=settings.object_reuse,
                extra=dict(t.extra),
            ),
            parallelism=parallelism,
            max_parallelism=default_max_parallelism(parallelism) if limit == UNSET else limit,
            slot_sharing_group=self._group(t),
            chaining_strategy=t.chaining_strategy,
            buffer_timeout_ms=settings.buffer_timeout_ms if t.buffer_timeout_ms is None else t.buffer_timeout_ms,
            uid=t.uid,
            uid_hash=t.uid_hash,
            description=t.description or display_name(t),
            internal=t.internal,
            non_parallel=t.non_parallel,
            adapts=not (t.own_parallelism or t.non_parallel),
        )
        self.nodes[node.id] = node
        for index, inputs in enumerate(t.inputs):
            for stream_input in inputs:
                self._connect(stream_input, node, index)

    def _connect(self, stream_input: StreamInput, node: StreamNode, index: int) -> None:
        up = self.nodes[stream_input.source.id]
        same_parallelism = up.parallelism == node.parallelism
        kind = stream_input.partitioner or (PartitionerKind.FORWARD if same_parallelism else PartitionerKind.REBALANCE)
        if kind is PartitionerKind.FORWARD and not same_parallelism:
            raise GraphError(
                f"forward() from {up.name!r} (parallelism {up.parallelism}) to {node.name!r} (parallelism "
                f"{node.parallelism}) needs equal parallelisms; use rebalance() or rescale(), or make them equal"
            )
        edge = StreamEdge(
            source=up.id,
            target=node.id,
            input_index=index,
            partitioner=kind,
            buffer_timeout_ms=up.buffer_timeout_ms,
            key_selector=stream_input.key_selector,
            partition=stream_input.partition,
            output_tag=stream_input.output_tag,
        )
        up.out_edges.append(edge)
        node.in_edges.append(edge)

    def _group(self, t: Transformation) -> str:
        """Slot-sharing group of an operator: the one set, else that of its inputs if they agree, else the default."""
        if t.slot_sharing_group is not None:
            return t.slot_sharing_group
        groups = {self.nodes[i.source.id].slot_sharing_group for inputs in t.inputs for i in inputs}
        return groups.pop() if len(groups) == 1 else DEFAULT_SLOT_SHARING_GROUP


def display_name(t: Transformation) -> str:
    """Return an operator's name as plans, logs and errors show it: sources and sinks are marked."""
    if t.kind is OperatorKind.SOURCE:
        return f"Source: {t.name}"
    return f"Sink: {t.name}" if t.kind in SINK_KINDS else t.name


_INPUTS: Final[Mapping[OperatorKind, int]] = {
    OperatorKind.SOURCE: 0,
    OperatorKind.COLUMNS_CO_CHANGELOG: 2,
    OperatorKind.CO_MAP: 2,
    OperatorKind.CO_FLAT_MAP: 2,
    OperatorKind.CO_PROCESS: 2,
    OperatorKind.KEYED_CO_MAP: 2,
    OperatorKind.KEYED_CO_FLAT_MAP: 2,
    OperatorKind.KEYED_CO_PROCESS: 2,
    OperatorKind.INTERVAL_JOIN: 2,
    OperatorKind.BROADCAST_PROCESS: 2,
    OperatorKind.KEYED_BROADCAST_PROCESS: 2,
}
"""Number of inputs, for the kinds whose number is not 1."""


def _check_connected(t: Transformation) -> None:
    expected = _INPUTS.get(t.kind, 1)
    if len(t.inputs) != expected or not all(t.inputs):
        connected = sum(1 for inputs in t.inputs if inputs)
        raise GraphError(
            f"operator {t.name!r} ({t.kind.value}) has {connected} connected inputs, but needs {expected}: "
            "build it from a stream of this environment"
        )


def reachable(ends: Iterable[Transformation]) -> dict[int, Transformation]:
    """Return these transformations and all that they read, directly or not, by id.

    Raises:
        GraphError: they come from different environments.
    """
    reached: dict[int, Transformation] = {}
    waiting = list(ends)
    while waiting:
        t = waiting.pop()
        # Each environment counts its ids from the same start: two operators of one id have different environments.
        same_id = reached.setdefault(t.id, t)
        if same_id is not t:
            raise GraphError(
                f"operators {same_id.name!r} and {t.name!r} come from different environments; "
                "a job is built in one environment"
            )
        for inputs in t.inputs:
            waiting.extend(i.source for i in inputs if reached.get(i.source.id) is not i.source)
    return reached
