"""Checks without a cluster what a program would do to the state of a savepoint (``firesteel upgrade``).

The job is built, and its operators are restored and opened as slots do it, from the descriptions of the state without
any entries: so the answers are those of a restore. User code runs in this process: what functions do when they are
opened happens here. Sources and sinks are not opened.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from firesteel.checkpoint.assign import RESULTS, OperatorRestore, TaskRestore
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.restore_point import RestorePoint, unclaimed
from firesteel.checkpoint.savepoints import read_savepoint_metadata
from firesteel.config import Settings, options
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.core.ids import new_job_id
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph, JobVertex
from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.graph.stream_graph import StreamGraph
from firesteel.runtime.chain.plan import ChainPlan
from firesteel.runtime.checkpoints.restore import open_inline, restore_operators
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.state.backend import load_state_backend
from firesteel.state.columnar.row_table import ROWS
from firesteel.state.columnar.snapshots import COLUMNS, REMOVED
from firesteel.state.heap_migration import listening
from firesteel.state.schema import Compatibility, SchemaCompatibility
from firesteel.state.snapshots import StateInfo
from firesteel.state.timelines import TIMELINE

if TYPE_CHECKING:
    from firesteel.datastream import StreamExecutionEnvironment

_NOT_OPENED: Final = frozenset(
    {
        OperatorKind.SOURCE,
        OperatorKind.ENUMERATOR,
        OperatorKind.SINK,
        OperatorKind.SINK_STAGE,
        OperatorKind.SINK_FUNCTION,
        OperatorKind.PRINT,
        OperatorKind.COLLECT,
        OperatorKind.COLUMNS_EXPAND,  # may connect to a database, and has no state
    }
)
_TIMERS: Final = "timers"
_OF_RUNTIME: Final = ("table", TIMELINE)
"""Kinds of state that belong to operators of the runtime, and not to the program."""


class Verdict(StrEnum):
    """What would become of an operator or a state."""

    RESTORED = "restored"
    """The state is taken as it is."""
    MIGRATED = "migrated"
    """The state is converted to the type that the program declares now, or by the program's migration steps."""
    KEPT = "kept"
    """``open()`` did not ask for it; it stays in snapshots, and the function may ask for it later."""
    NEW = "new"
    """The savepoint does not have it; it begins empty."""
    DROPPED = "dropped"
    """The program does not have it any more."""
    INCOMPATIBLE = "incompatible"
    """The job would not start."""
    UNKNOWN = "unknown"
    """The verdict can't be found without running the job."""


@dataclass
class StateVerdict:
    """The verdict on a state of an operator.

    Attributes:
        how: how it is migrated, or why it is incompatible; with the field in front.
    """

    name: str
    kind: str
    verdict: Verdict
    how: str = ""

    def to_plain(self) -> dict[str, str]:
        return {"name": self.name, "kind": self.kind, "verdict": self.verdict.value, "how": self.how}


@dataclass
class OperatorVerdict:
    """The verdict on an operator and its states.

    Attributes:
        verdict: ``RESTORED``, ``NEW``, ``DROPPED``, ``INCOMPATIBLE`` or ``UNKNOWN``.
        how: the reason, if there is one.
        parallelism, max_parallelism: before and now; None = it is not there.
    """

    operator_id: str
    uid: str | None
    name: str
    verdict: Verdict
    how: str = ""
    parallelism: tuple[int | None, int | None] = (None, None)
    max_parallelism: tuple[int | None, int | None] = (None, None)
    states: list[StateVerdict] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        return {
            "id": self.operator_id,
            "uid": self.uid,
            "name": self.name,
            "verdict": self.verdict.value,
            "how": self.how,
            "parallelism": {"before": self.parallelism[0], "now": self.parallelism[1]},
            "max-parallelism": {"before": self.max_parallelism[0], "now": self.max_parallelism[1]},
            "states": [state.to_plain() for state in self.states],
        }


@dataclass
class Upgrade:
    """The verdicts on all operators of a program and a savepoint.

    Attributes:
        path: of the savepoint.
        operators: those of the program, then those that only the savepoint has.
    """

    path: str
    operators: list[OperatorVerdict]

    @property
    def works(self) -> bool:
        """Whether the job would start, as far as it can be found out here."""
        verdicts = [
            verdict
            for operator in self.operators
            for verdict in (operator.verdict, *(s.verdict for s in operator.states))
        ]
        return Verdict.INCOMPATIBLE not in verdicts

    def to_plain(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "works": self.works,
            "operators": [operator.to_plain() for operator in self.operators],
        }

    def to_lines(self) -> list[str]:
        lines: list[str] = []
        for operator in self.operators:
            uid = f"uid {operator.uid!r}" if operator.uid else operator.operator_id
            how = f": {operator.how}" if operator.how else ""
            lines.append(f"{operator.name} ({uid}): {operator.verdict}{_changes(operator)}{how}")
            for state in operator.states:
                how = f"  {state.how}" if state.how else ""
                lines.append(f"  {state.name:<30} {state.kind:<12} {state.verdict}{how}")
        lines.append("The program can go on from it." if self.works else "The program can't go on from it.")
        return lines


def _changes(operator: OperatorVerdict) -> str:
    pairs = (("parallelism", operator.parallelism), ("maximum parallelism", operator.max_parallelism))
    changed = [
        f"{label} {before} -> {now}" for label, (before, now) in pairs if None not in (before, now) and before != now
    ]
    return f", {', '.join(changed)}" if changed else ""


def upgrade_of(environment: StreamExecutionEnvironment, path: str) -> Upgrade:
    """What the next ``execute()`` of an environment would do to the state of a savepoint or checkpoint.

    Args:
        environment: with the operators of the job.
        path: of the savepoint or checkpoint.

    Raises:
        CheckpointError: there is none, or it is damaged.
        GraphError: the graph is empty or refused.
    """
    settings = environment._settings()
    metadata = read_savepoint_metadata(path, settings)
    return check_upgrade(environment._stream_graph(None), settings.to_plain(), metadata, path)


def check_upgrade(graph: StreamGraph, config: Mapping[str, str], metadata: CheckpointMetadata, path: str) -> Upgrade:
    """Restore each task of the program from a savepoint's descriptions of state, and note what happens.

    Args:
        graph: of the program.
        config: settings of the job.
        metadata: of the savepoint or checkpoint.
        path: of the savepoint or checkpoint.
    """
    settings = Settings(config)
    ignores = settings.get(options.STATE_RECOVERY_IGNORE_UNCLAIMED)
    chains: list[ChainSpec] = []

    def remember(chain: ChainSpec) -> bytes:
        chains.append(chain)
        return str(len(chains)).encode()

    planned_job, _ = build_job_graph(graph, job_id=new_job_id(), pickle_chain=remember, config=config)
    operator_verdicts: list[OperatorVerdict] = []
    with tempfile.TemporaryDirectory(prefix="firesteel-upgrade-") as directory:
        for vertex, chain in zip(planned_job.vertices, chains, strict=True):
            operator_verdicts += _Vertex(vertex, chain, planned_job, metadata, settings, directory).verdicts(
                path, ignores
            )
    for operator in metadata.operators:
        if not any(operator.operator_id == verdict.operator_id for verdict in operator_verdicts):
            operator_verdicts.append(_dropped(operator, operator in unclaimed(metadata, planned_job), ignores))
    return Upgrade(path, operator_verdicts)


def _dropped(operator: OperatorState, has_state: bool, ignores: bool) -> OperatorVerdict:
    states = [StateVerdict(info.name, info.kind, Verdict.DROPPED) for info in _infos(operator)]
    verdict, how = Verdict.DROPPED, "" if has_state else "it had no state"
    if has_state and not ignores:
        verdict, how = Verdict.INCOMPATIBLE, "the program does not have it any more; -n drops its state"
    return OperatorVerdict(
        operator.operator_id,
        operator.uid,
        operator.name,
        verdict,
        how,
        (operator.parallelism, None),
        (operator.max_parallelism, None),
        states,
    )


def _infos(operator: OperatorState) -> list[StateInfo]:
    """Descriptions of all states that any subtask has written, each once."""
    infos_by_name: dict[tuple[str, str], StateInfo] = {}
    for _, subtask in sorted(operator.subtasks.items()):
        for name, keyed in subtask.keyed.items():
            for plain in () if name == RESULTS else keyed.states:
                info = StateInfo.from_json(dict(plain))
                if info.kind != REMOVED:
                    infos_by_name.setdefault((info.name, info.kind), info)
        for plain in () if subtask.operator is None else subtask.operator.states:
            info = StateInfo.from_json(dict(plain))
            infos_by_name.setdefault((info.name, info.kind), info)
    return list(infos_by_name.values())


class _Vertex:
    """A vertex of the program's job, with the operators of the savepoint that belong to it."""

    def __init__(
        self,
        vertex: JobVertex,
        chain: ChainSpec,
        job: JobGraph,
        metadata: CheckpointMetadata,
        settings: Settings,
        directory: str,
    ) -> None:
        self._vertex, self._chain, self._job, self._settings = vertex, chain, job, settings
        self._directory = directory
        vertex_operator_ids = {operator.id for operator in vertex.operators}
        operators = tuple(operator for operator in metadata.operators if operator.operator_id in vertex_operator_ids)
        self._metadata = replace(metadata, operators=operators)
        self._saved = {operator.operator_id: operator for operator in operators}

    def verdicts(self, path: str, ignores: bool) -> list[OperatorVerdict]:
        try:
            alone = replace(self._job, vertices=(self._vertex,), edges=())
            point = RestorePoint(self._metadata, path, alone, ignores, same_program=False)
            point.enumerator(self._vertex)
        except ProgramError as error:
            return [
                self._verdict(spec.id, spec.name, Verdict.INCOMPATIBLE, str(error)) for spec in self._chain.operators
            ]
        return self._restored_verdicts(point)

    def _verdict(self, id_: str, name: str, verdict: Verdict, how: str = "") -> OperatorVerdict:
        saved_operator = self._saved.get(id_)
        info = next((operator for operator in self._vertex.operators if operator.id == id_), None)
        if saved_operator is None and verdict is Verdict.INCOMPATIBLE:
            verdict, how = Verdict.NEW, ""
        return OperatorVerdict(
            id_,
            saved_operator.uid if saved_operator is not None else getattr(info, "uid", None),
            name,
            verdict,
            how,
            (None if saved_operator is None else saved_operator.parallelism, self._vertex.parallelism),
            (None if saved_operator is None else saved_operator.max_parallelism, self._vertex.max_parallelism),
            [] if saved_operator is None else _StateVerdicts(_infos(saved_operator)).verdicts(whole=False),
        )

    def _restored_verdicts(self, point: RestorePoint) -> list[OperatorVerdict]:
        backend = load_state_backend(self._settings.get(options.STATE_BACKEND))
        backend.configure(self._settings)
        info = TaskInfo(
            self._job.job_id,
            self._job.name,
            "upgrade",
            self._vertex.name,
            0,
            self._vertex.parallelism,
            self._vertex.max_parallelism,
            0,
        )
        clock = SystemClock()
        plan = ChainPlan(self._chain)
        plan.use_state_backend(backend, info, clock, directory=os.path.join(self._directory, self._vertex.id))
        context = OperatorContext(info, clock, checkpointing=True)
        operator_verdicts: list[OperatorVerdict] = []
        for index, operator in reversed(list(enumerate(plan.operators))):  # tail to head, as in Flink
            stamp = plan.stage_of[index].stamp
            operator_verdicts.append(
                self._operator_verdict(operator, info, replace(context, stamp=stamp), backend.name)
            )
        return operator_verdicts[::-1]

    def _operator_verdict(
        self, operator: Operator, info: TaskInfo, context: OperatorContext, backend: str
    ) -> OperatorVerdict:
        id_ = operator.spec.id
        saved_operator = self._saved.get(id_)
        result = self._verdict(id_, operator.name, Verdict.NEW if saved_operator is None else Verdict.RESTORED)
        states, whole = _StateVerdicts([] if saved_operator is None else _infos(saved_operator)), True
        try:
            if operator.spec.kind in _NOT_OPENED:
                states.mark_unopened()
            else:
                with listening(states.note_migration):
                    self._restore(operator, saved_operator, info, backend)
                    states.mark_restored_whole()
                    operator.create(context)
                    try:
                        operator.open(context)
                    finally:
                        states.note_opened(operator)
                        operator.close()
        except ProgramError as error:
            cause = error if isinstance(error, StateMigrationError) else error.__cause__
            if isinstance(cause, StateMigrationError):
                states.note_refused(cause)
            else:
                result.verdict, result.how = Verdict.INCOMPATIBLE, str(error)
            whole = False
        except Exception as error:  # the user's open() does what it likes
            result.verdict = Verdict.UNKNOWN
            result.how = f"it could not be opened here: {type(error).__qualname__}: {error}"
            whole = False
        result.states = states.verdicts(whole=whole)
        return result

    def _restore(self, operator: Operator, saved_operator: OperatorState | None, info: TaskInfo, backend: str) -> None:
        """Restore an operator as a task does, from the descriptions of all subtasks but without any entries."""
        if saved_operator is None or not any(not subtask.is_empty for subtask in saved_operator.subtasks.values()):
            return
        keyed: dict[str, list[Any]] = {}
        written: list[Any] = []
        for _, subtask in sorted(saved_operator.subtasks.items()):
            for name, part in subtask.keyed.items():
                if name != RESULTS:
                    files = {} if backend == "rocksdb" else part.files
                    keyed.setdefault(name, []).append(replace(part, handles=(), files=files))
            if subtask.operator is not None:
                written.append(replace(subtask.operator, handles=()))
        keys = next((subtask.keys for subtask in saved_operator.subtasks.values() if subtask.keys is not None), None)
        restore = OperatorRestore({name: tuple(parts) for name, parts in keyed.items()}, tuple(written), keys=keys)
        restore_operators(
            TaskRestore(self._metadata.checkpoint_id, False, {operator.spec.id: restore}), [operator], info, open_inline
        )


class _StateVerdicts:
    """Collects the verdicts on the states of one operator while it is restored and opened.

    Args:
        saved_states: what the savepoint has.
    """

    def __init__(self, saved_states: Sequence[StateInfo]) -> None:
        self._saved = {(info.name, _area(info.kind)): info for info in saved_states}
        self._verdicts: dict[tuple[str, str], StateVerdict] = {}

    def note_migration(self, saved_state: StateInfo, program_state: StateInfo, answer: Compatibility) -> bool:
        """Note how a state that is asked for is migrated; True: go on whatever the answer is, to hear of all states.

        Called by ``heap_migration.compatibility``, for each state that the savepoint has.
        """
        verdict = {
            SchemaCompatibility.AS_IS: Verdict.RESTORED,
            SchemaCompatibility.MIGRATE: Verdict.MIGRATED,
            SchemaCompatibility.INCOMPATIBLE: Verdict.INCOMPATIBLE,
        }[answer.answer]
        how = f"{answer.field}: {answer.reason}" if answer.field else answer.reason
        ttl = (
            ""
            if saved_state.ttl == program_state.ttl
            else "its time-to-live begins now"
            if program_state.ttl
            else "it has no time-to-live now"
        )
        if ttl and verdict is not Verdict.INCOMPATIBLE:
            verdict, how = Verdict.MIGRATED, "; ".join(filter(None, [how, ttl]))
        place = (program_state.name, _area(saved_state.kind))
        earlier_verdict = self._verdicts.get(place)
        if (
            earlier_verdict is None or earlier_verdict.verdict is not Verdict.INCOMPATIBLE
        ):  # subtasks may differ in the type
            self._verdicts[place] = StateVerdict(program_state.name, program_state.kind, verdict, how)
        return True

    def mark_unopened(self) -> None:
        """Mark all states as unknown: sources and sinks are not opened here."""
        for info in self._saved.values():
            self._verdicts[info.name, _area(info.kind)] = StateVerdict(
                info.name, info.kind, Verdict.UNKNOWN, "sources and sinks are not opened here"
            )

    def mark_restored_whole(self) -> None:
        """Mark state in columns, timers and tables of the runtime: a restore takes them over as a whole."""
        for (name, area), info in self._saved.items():
            if info.kind in (COLUMNS, _TIMERS, *_OF_RUNTIME):
                self._verdicts[name, area] = StateVerdict(name, info.kind, Verdict.RESTORED)

    def note_opened(self, operator: Operator) -> None:
        """Note states that the operator asked for in ``open`` and that the savepoint does not have."""
        for part in getattr(operator.keyed, "_parts", {}).values():
            self._note_new(part.info)
        for part in operator.operator_state._parts.values():
            if part.kind is not None:
                self._note_new(part.info)
        computed_states: Mapping[str, Any] | None = getattr(operator, "computed_states", None)
        if computed_states is not None:
            self._note_computed(computed_states)
            return
        state = getattr(operator, "state", None)
        for (name, area), info in list(self._saved.items()):
            if info.kind == COLUMNS and getattr(state, "info", None) is not None:
                self._verdicts[name, area] = _of_columns(info, state)

    def _note_computed(self, states: Mapping[str, Any]) -> None:
        """Note what becomes of the columns and rows of an operator that drops what it does not need any more."""
        for (name, area), info in self._saved.items():
            if info.kind in (COLUMNS, ROWS):
                state = states.get(name)
                self._verdicts[name, area] = (
                    StateVerdict(name, info.kind, Verdict.DROPPED) if state is None else _of_columns(info, state)
                )
        for name, state in states.items():
            place = (name, _area(state.info.kind))
            if place not in self._verdicts:
                self._verdicts[place] = StateVerdict(name, state.info.kind, Verdict.NEW)

    def _note_new(self, info: StateInfo) -> None:
        place = (info.name, _area(info.kind))
        if place not in self._verdicts and info.kind not in _OF_RUNTIME:
            self._verdicts[place] = StateVerdict(info.name, info.kind, Verdict.NEW)

    def note_refused(self, error: StateMigrationError) -> None:
        """Note the state for which the operator refused to start."""
        info = next((info for info in self._saved.values() if info.name == error.state), None)
        how = f"{error.field}: {error.reason}" if error.field else error.reason
        kind = "" if info is None else info.kind
        self._verdicts[error.state, _area(kind)] = StateVerdict(error.state, kind, Verdict.INCOMPATIBLE, how)

    def verdicts(self, *, whole: bool = True) -> list[StateVerdict]:
        """All verdicts; saved states without one were not asked for.

        Args:
            whole: whether ``open`` came to its end, so that states it did not ask for are known to be kept.
        """
        verdict, how = (Verdict.KEPT, "nobody asks for it in open()") if whole else (Verdict.UNKNOWN, "")
        for (name, area), info in self._saved.items():
            if (name, area) not in self._verdicts:
                self._verdicts[name, area] = StateVerdict(name, info.kind, verdict, how)
        return list(self._verdicts.values())


def _of_columns(info: StateInfo, state: Any) -> StateVerdict:
    """The verdict on restored state in columns: which aggregates or columns were added, removed or changed."""
    changes: list[str] = []
    aggregates = info.schema.get("aggregates")
    if aggregates is not None:
        _names(changes, [name for name, *_ in aggregates], [name for name, *_ in state.info.schema["aggregates"]])
        saved_parts, current_parts = (
            {name: input_type for name, _, input_type in schema}
            for schema in (aggregates, state.info.schema["aggregates"])
        )
        changes += [
            f"{name}: its input was {input_type} and is {current_parts[name]}"
            for name, input_type in saved_parts.items()
            if current_parts.get(name, input_type) != input_type
        ]
    else:
        saved_parts = info.schema.get("columns", {})
        current_parts = state.declared_columns
        names_of = list if info.kind == ROWS else _parts
        _names(changes, names_of(saved_parts), names_of(current_parts))
        changes += [
            f"{name}: {data_type} -> {current_parts[name]}"
            for name, data_type in saved_parts.items()
            if current_parts.get(name, data_type) != data_type
        ]
    verdict = Verdict.MIGRATED if changes else Verdict.RESTORED
    return StateVerdict(info.name, info.kind, verdict, "; ".join(changes))


def _parts(columns: Iterable[str]) -> list[str]:
    """Names of the aggregates or states that own these columns, each once."""
    return list(dict.fromkeys(name.rpartition(":" if ":" in name else ".")[0] or name for name in columns))


def _names(changes: list[str], saved_names: Iterable[str], current_names: Iterable[str]) -> None:
    former, current = list(saved_names), list(current_names)
    changes += [f"{name}: added, begins empty" for name in current if name not in former]
    changes += [f"{name}: removed" for name in former if name not in current]


def _area(kind: str) -> str:
    """Namespace of a state's name: columns, timers and tables may have the name of a program's state."""
    return kind if kind in (COLUMNS, _TIMERS, *_OF_RUNTIME) else ""
