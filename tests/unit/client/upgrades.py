"""Programs with state, run up to a savepoint and restored from one: really, and by ``check_upgrade``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from firesteel.checkpoint.chunks import write_chunks
from firesteel.checkpoint.handles import InlineState
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.restore_point import RestorePoint
from firesteel.checkpoint.subtask_state import KeyedState, OperatorListState, OperatorSubtaskState
from firesteel.client.upgrade import Upgrade, check_upgrade
from firesteel.common import Types
from firesteel.core.errors import ProgramError
from firesteel.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.functions import CheckpointedFunction
from firesteel.datastream.state import StateDescriptor
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.runtime.chain.chain import ChainExecutor, ChainPlan
from firesteel.runtime.checkpoints.restore import open_inline, restore_operators
from firesteel.runtime.loop.interrupts import CancelToken, InterruptGuard
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.runtime.operator_base.initialization import SnapshotContext
from firesteel.runtime.records.batch import Batch, Watermark
from firesteel.state.backend import load_state_backend
from firesteel.state.snapshots import Purpose
from tests.unit.runtime.support import ManualClock

JOB = "ab" * 16
KEYS = 3
RECORDS = [(n % KEYS, n, n / 2) for n in range(12)]
ROW = Types.TUPLE([Types.INT(), Types.INT(), Types.DOUBLE()])
Build = Callable[[DataStream], Any]
"""What a program does with its records; the operators with state have uids."""


class Keeps(KeyedProcessFunction[Any, Any, Any]):
    """Writes each of its states at each record, and gives what was there before.

    Args:
        states: descriptors with what is written: a value, a list of elements, or a dict.
    """

    def __init__(self, *states: tuple[StateDescriptor, Any]) -> None:
        self._given = states

    def open(self, runtime_context: Any) -> None:
        self._states = [(getattr(runtime_context, _METHODS[type(d).__name__])(d), v) for d, v in self._given]

    def process_element(self, value: Any, ctx: Any) -> Any:
        for state, written in self._states:
            if hasattr(state, "value"):
                before = state.value()
                state.update(written)
            elif hasattr(state, "put_all"):
                before = dict(state.items())
                state.put_all(written)
            elif hasattr(state, "add_all"):
                before = list(state.get())
                state.update(written)
            else:
                before = state.get()
                state.add(written)
            SEEN.append((state_name(self._given, self._states, state), value[0], before))
        yield value


SEEN: list[tuple[str, Any, Any]] = []
"""State, key and value before, of each record of the last run."""
PRINTED: list[str] = []
_METHODS = {
    "ValueStateDescriptor": "get_state",
    "ListStateDescriptor": "get_list_state",
    "MapStateDescriptor": "get_map_state",
    "ReducingStateDescriptor": "get_reducing_state",
    "AggregatingStateDescriptor": "get_aggregating_state",
}


def state_name(described: Sequence[Any], states: Sequence[Any], state: Any) -> str:
    """Of one of a function's."""
    return next(str(d.name) for (d, _), (s, _) in zip(described, states, strict=True) if s is state)


class Lists(CheckpointedFunction, KeyedProcessFunction[Any, Any, Any]):
    """Operator state: a list of one element; ``union`` or split."""

    def __init__(self, descriptor: Any, value: Any, union: bool = False) -> None:
        self._descriptor, self._value, self._union = descriptor, value, union

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        get = store.get_union_list_state if self._union else store.get_list_state
        self._list = get(self._descriptor)
        SEEN.extend((self._descriptor.name, None, element) for element in self._list.get())

    def snapshot_state(self, context: Any) -> None:
        self._list.update([self._value])

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def keeps(*states: tuple[StateDescriptor, Any], uid: str = "op", key: Any = None) -> Build:
    """A program with one operator that keeps these states."""

    def build(stream: DataStream) -> Any:
        keyed = stream.key_by(key or (lambda record: record[0]), None if key else Types.INT())
        return keyed.process(Keeps(*states), ROW).name(f"keeps {uid}").uid(uid)

    return build


class Program:
    """A program up to its job.

    Args:
        build: makes it.
        parallelism, max_parallelism: of all operators but the source.
        settings: of the job.

    Attributes:
        watermark: comes behind the records.
        records: that are read.
    """

    watermark = 5
    records: list[Any] = RECORDS

    def __init__(self, build: Build, parallelism: int = 1, max_parallelism: int = 128, **settings: str) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        env.set_max_parallelism(max_parallelism)
        build(env.from_collection(RECORDS, ROW).uid("source")).print().uid("print")
        self.graph = env._stream_graph("test")
        self.chains: list[ChainSpec] = []

        def remember(chain: ChainSpec) -> bytes:
            self.chains.append(copy.deepcopy(chain))
            return str(len(self.chains)).encode()

        config = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
        self.job, _ = build_job_graph(self.graph, job_id=JOB, pickle_chain=remember, config=config)

    def savepoint(self) -> CheckpointMetadata:
        """Run all records, each subtask with those of its own keys, and write the state."""
        return self._run(None)

    def restored(self, metadata: CheckpointMetadata, ignores: bool = False) -> str:
        """Go on from a savepoint and run all records again; the error, if it is refused."""
        point = RestorePoint(metadata, "/savepoint", self.job, ignores, same_program=False)
        try:
            for vertex in self.job.vertices:
                point.enumerator(vertex)
            self._run(point)
        except ProgramError as error:
            return str(error)
        return ""

    def _run(self, point: RestorePoint | None) -> CheckpointMetadata:
        SEEN.clear()
        PRINTED.clear()
        operators: list[OperatorState] = []
        for vertex, chain in zip(self.job.vertices, self.chains, strict=True):
            subtasks: dict[str, dict[int, OperatorSubtaskState]] = {}
            for subtask in range(vertex.parallelism):
                info = TaskInfo(JOB, "test", "e", vertex.name, subtask, vertex.parallelism, vertex.max_parallelism, 0)
                plan = ChainPlan(copy.deepcopy(chain))
                plan.use_state_backend(load_state_backend("hashmap"), info, ManualClock())
                if point is not None:
                    restore = point.subtask(vertex.id, subtask)
                    restore_operators(restore, plan.operators, info, open_inline)
                self._task(plan, info)
                for operator in plan.operators:
                    state = _written(operator)
                    if not state.is_empty:
                        subtasks.setdefault(operator.spec.id, {})[subtask] = state
                    operator.close()
            operators += [
                OperatorState(o.id, o.name, o.uid, vertex.parallelism, vertex.max_parallelism, subtasks.get(o.id, {}))
                for o in vertex.operators
            ]
        return CheckpointMetadata(7, JOB, 0, tuple(operators), {"job_name": "test", "savepoint": {}})

    def _task(self, plan: ChainPlan, info: TaskInfo) -> None:
        if plan.operators[0].spec.kind is OperatorKind.SOURCE:
            return
        clock = ManualClock()
        for index, operator in reversed(list(enumerate(plan.operators))):
            stamp = plan.stage_of[index].stamp
            operator.open(OperatorContext(info, clock, stamp, checkpointing=True, write_stdout=PRINTED.append))
        executor = ChainExecutor(plan, InterruptGuard(), CancelToken())
        groups = plan.operators[0].key_groups
        group_of = getattr(plan.operators[0], "key_group_of", lambda key: groups[0])
        own = [record for record in self.records if group_of(record[0]) in groups]
        if own:
            executor.feed(Batch(own, [record[1] for record in own]), 0)
        executor.advance(Watermark(self.watermark))
        while executor.pending:
            executor.step()

    def upgrade(self, metadata: CheckpointMetadata, ignores: bool = False) -> Upgrade:
        """What ``firesteel upgrade --dry-run`` says."""
        config = {**self.job.config, "execution.state-recovery.ignore-unclaimed-state": str(ignores).lower()}
        return check_upgrade(self.graph, config, metadata, "/savepoint")


def _written(operator: Operator) -> OperatorSubtaskState:
    operator.snapshot_state(SnapshotContext(7, 0))
    keyed: dict[str, KeyedState] = {}
    for name, part in operator.snapshot_parts().items():
        infos, handles = _chunks(part.snapshot(purpose=Purpose(7, canonical=True)))
        if infos:
            groups = operator.key_groups[0], operator.key_groups[-1]
            keyed[name] = KeyedState(infos, groups, handles)
    infos, handles = _chunks(operator.operator_state.snapshot())
    lists = OperatorListState(infos, handles) if infos else None
    return OperatorSubtaskState(keyed=keyed, operator=lists, keys=operator.key_kinds() if keyed else None)


def _chunks(snapshot: Any) -> tuple[tuple[Any, ...], tuple[InlineState, ...]]:
    chunks = [chunk for some in snapshot for chunk in some]
    data = write_chunks((c.state, c.key_group, c.count, c.data) for c in chunks)
    return tuple(info.to_json() for info in snapshot.states), (InlineState(data),)
