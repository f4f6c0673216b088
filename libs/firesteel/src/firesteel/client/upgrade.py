"""What a program would do to the state of a savepoint, found out without a cluster.

The job is built, and its operators are restored and opened as slots do it, from the descriptions of the state without
any entries: so the answers are those of a restore. User code runs in this process: what functions do when they are
opened happens here. Sources and sinks are not opened.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from firesteel.checkpoint.assign import RESULTS, OperatorRestore, TaskRestore
from firesteel.checkpoint.metadata import CheckpointMetadata, OperatorState
from firesteel.checkpoint.restore_point import RestorePoint, unclaimed
from firesteel.config import Settings, options
from firesteel.core.clock import SystemClock
from firesteel.core.errors import ProgramError, StateMigrationError
from firesteel.graph.chaining import build_job_graph
from firesteel.graph.job_graph import JobGraph, JobVertex
from firesteel.graph.specs import ChainSpec, OperatorKind
from firesteel.graph.stream_graph import StreamGraph
from firesteel.runtime.chain.plan import ChainPlan
from firesteel.runtime.checkpoints.restore import open_inline, restore_operators
from firesteel.runtime.operator_base.base import Operator
from firesteel.runtime.operator_base.context import OperatorContext, TaskInfo
from firesteel.state.backend import load_state_backend
from firesteel.state.columnar.snapshots import COLUMNS, REMOVED
from firesteel.state.heap_migration import listening
from firesteel.state.schema import Compatibility, SchemaCompatibility
from firesteel.state.snapshots import StateInfo
from firesteel.state.timelines import TIMELINE

_NOT_OPENED: Final = frozenset(
    {
        OperatorKind.SOURCE,
        OperatorKind.ENUMERATOR,
        OperatorKind.SINK,
        OperatorKind.SINK_STAGE,
        OperatorKind.SINK_FUNCTION,
        OperatorKind.PRINT,
        OperatorKind.COLLECT,
    }
)
_TIMERS: Final = "timers"
_OF_RUNTIME: Final = ("table", TIMELINE)
"""Tables of operators."""


class Verdict(StrEnum):
    """What becomes of state."""

    RESTORED = "restored"
    """As it is."""
    MIGRATED = "migrated"
    """It becomes the type of now, or goes through the program's steps."""
    KEPT = "kept"
    """Nobody has asked for it when the operator was open; it stays in snapshots, and may be asked for later."""
    NEW = "new"
    """It was not there, and begins empty."""
    DROPPED = "dropped"
    """Nobody has it any more."""
    INCOMPATIBLE = "incompatible"
    """The job would not start."""
    UNKNOWN = "unknown"
    """It can't be told here."""


@dataclass
class StateVerdict:
    """One state of an operator.

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
    """One operator.

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
    """All of it.

    Attributes:
        path: of the savepoint.
        operators: of the program, then those that it does not have any more.
    """

    path: str
    operators: list[OperatorVerdict]

    @property
    def works(self) -> bool:
        """Whether the job would start, as far as it can be told."""
        found = [verdict for one in self.operators for verdict in (one.verdict, *(s.verdict for s in one.states))]
        return Verdict.INCOMPATIBLE not in found

    def to_plain(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "works": self.works,
            "operators": [operator.to_plain() for operator in self.operators],
        }

    def to_lines(self) -> list[str]:
        lines: list[str] = []
        for one in self.operators:
            uid = f"uid {one.uid!r}" if one.uid else one.operator_id
            lines.append(f"{one.name} ({uid}): {one.verdict}{_changes(one)}{f': {one.how}' if one.how else ''}")
            for state in one.states:
                how = f"  {state.how}" if state.how else ""
                lines.append(f"  {state.name:<30} {state.kind:<12} {state.verdict}{how}")
        lines.append("The program can go on from it." if self.works else "The program can't go on from it.")
        return lines


def _changes(one: OperatorVerdict) -> str:
    pairs = (("parallelism", one.parallelism), ("maximum parallelism", one.max_parallelism))
    changed = [f"{what} {was} -> {now}" for what, (was, now) in pairs if None not in (was, now) and was != now]
    return f", {', '.join(changed)}" if changed else ""


def check_upgrade(graph: StreamGraph, job: JobGraph, metadata: CheckpointMetadata, path: str) -> Upgrade:
    """What would become of the state.

    Args:
        graph: of the program.
        job: the same, as it would be submitted; with its settings.
        metadata: of the savepoint or checkpoint.
        path: of it.
    """
    settings = Settings(job.config)
    ignores = settings.get(options.STATE_RECOVERY_IGNORE_UNCLAIMED)
    chains: list[ChainSpec] = []

    def remember(chain: ChainSpec) -> bytes:
        chains.append(chain)
        return str(len(chains)).encode()

    own, _ = build_job_graph(graph, job_id=job.job_id, pickle_chain=remember, config=job.config)
    found: list[OperatorVerdict] = []
    with tempfile.TemporaryDirectory(prefix="firesteel-upgrade-") as directory:
        for vertex, chain in zip(own.vertices, chains, strict=True):
            found += _Vertex(vertex, chain, own, metadata, settings, directory).verdicts(path, ignores)
    for operator in metadata.operators:
        if not any(operator.operator_id == one.operator_id for one in found):
            found.append(_dropped(operator, operator in unclaimed(metadata, own), ignores))
    return Upgrade(path, found)


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
    """All states that any subtask has written, each once."""
    found: dict[tuple[str, str], StateInfo] = {}
    for _, subtask in sorted(operator.subtasks.items()):
        for name, keyed in subtask.keyed.items():
            for plain in () if name == RESULTS else keyed.states:
                info = StateInfo.from_json(dict(plain))
                if info.kind != REMOVED:
                    found.setdefault((info.name, info.kind), info)
        for plain in () if subtask.operator is None else subtask.operator.states:
            info = StateInfo.from_json(dict(plain))
            found.setdefault((info.name, info.kind), info)
    return list(found.values())


class _Vertex:
    """One task of the job."""

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
        mine = {operator.id for operator in vertex.operators}
        operators = tuple(operator for operator in metadata.operators if operator.operator_id in mine)
        self._metadata = replace(metadata, operators=operators)
        self._before = {operator.operator_id: operator for operator in operators}

    def verdicts(self, path: str, ignores: bool) -> list[OperatorVerdict]:
        try:
            alone = replace(self._job, vertices=(self._vertex,), edges=())
            point = RestorePoint(self._metadata, path, alone, ignores, same_program=False)
            point.enumerator(self._vertex)
        except ProgramError as error:
            return [
                self._verdict(spec.id, spec.name, Verdict.INCOMPATIBLE, str(error)) for spec in self._chain.operators
            ]
        return self._tried(point)

    def _verdict(self, id_: str, name: str, verdict: Verdict, how: str = "") -> OperatorVerdict:
        before = self._before.get(id_)
        info = next((operator for operator in self._vertex.operators if operator.id == id_), None)
        if before is None and verdict is Verdict.INCOMPATIBLE:
            verdict, how = Verdict.NEW, ""
        return OperatorVerdict(
            id_,
            before.uid if before is not None else getattr(info, "uid", None),
            name,
            verdict,
            how,
            (None if before is None else before.parallelism, self._vertex.parallelism),
            (None if before is None else before.max_parallelism, self._vertex.max_parallelism),
            [] if before is None else _Found(_infos(before)).verdicts(whole=False),
        )

    def _tried(self, point: RestorePoint) -> list[OperatorVerdict]:
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
        found: list[OperatorVerdict] = []
        for index, operator in reversed(list(enumerate(plan.operators))):  # tail to head, as in Flink
            stamp = plan.stage_of[index].stamp
            found.append(self._of_operator(operator, info, replace(context, stamp=stamp), backend.name))
        return found[::-1]

    def _of_operator(
        self, operator: Operator, info: TaskInfo, context: OperatorContext, backend: str
    ) -> OperatorVerdict:
        id_ = operator.spec.id
        before = self._before.get(id_)
        result = self._verdict(id_, operator.name, Verdict.NEW if before is None else Verdict.RESTORED)
        states, whole = _Found([] if before is None else _infos(before)), True
        try:
            if operator.spec.kind in _NOT_OPENED:
                states.take_all()
            else:
                with listening(states.heard):
                    self._restore(operator, before, info, backend)
                    states.columns(operator)
                    operator.create(context)
                    try:
                        operator.open(context)
                    finally:
                        states.asked(operator)
                        operator.close()
        except ProgramError as error:
            cause = error if isinstance(error, StateMigrationError) else error.__cause__
            if isinstance(cause, StateMigrationError):
                states.refused(cause)
            else:
                result.verdict, result.how = Verdict.INCOMPATIBLE, str(error)
            whole = False
        except Exception as error:  # the user's open() does what it likes
            result.verdict = Verdict.UNKNOWN
            result.how = f"it could not be opened here: {type(error).__qualname__}: {error}"
            whole = False
        result.states = states.verdicts(whole=whole)
        return result

    def _restore(self, operator: Operator, before: OperatorState | None, info: TaskInfo, backend: str) -> None:
        """As a task does it, with everything that any subtask has written, but no entries of it."""
        if before is None or not any(not subtask.is_empty for subtask in before.subtasks.values()):
            return
        keyed: dict[str, list[Any]] = {}
        written: list[Any] = []
        for _, subtask in sorted(before.subtasks.items()):
            for name, part in subtask.keyed.items():
                if name != RESULTS:
                    files = {} if backend == "rocksdb" else part.files
                    keyed.setdefault(name, []).append(replace(part, handles=(), files=files))
            if subtask.operator is not None:
                written.append(replace(subtask.operator, handles=()))
        keys = next((subtask.keys for subtask in before.subtasks.values() if subtask.keys is not None), None)
        restore = OperatorRestore({name: tuple(parts) for name, parts in keyed.items()}, tuple(written), keys=keys)
        restore_operators(
            TaskRestore(self._metadata.checkpoint_id, False, {operator.spec.id: restore}), [operator], info, open_inline
        )


class _Found:
    """What was heard of the states of one operator.

    Args:
        before: what the savepoint has.
    """

    def __init__(self, before: Sequence[StateInfo]) -> None:
        self._before = {(info.name, _area(info.kind)): info for info in before}
        self._found: dict[tuple[str, str], StateVerdict] = {}

    def heard(self, old: StateInfo, new: StateInfo, answer: Compatibility) -> bool:
        """A state is asked for; it goes on whatever the answer is."""
        verdict = {
            SchemaCompatibility.AS_IS: Verdict.RESTORED,
            SchemaCompatibility.MIGRATE: Verdict.MIGRATED,
            SchemaCompatibility.INCOMPATIBLE: Verdict.INCOMPATIBLE,
        }[answer.answer]
        how = f"{answer.field}: {answer.reason}" if answer.field else answer.reason
        ttl = "" if old.ttl == new.ttl else "its time-to-live begins now" if new.ttl else "it has no time-to-live now"
        if ttl and verdict is not Verdict.INCOMPATIBLE:
            verdict, how = Verdict.MIGRATED, "; ".join(filter(None, [how, ttl]))
        place = (new.name, _area(old.kind))
        known = self._found.get(place)
        if known is None or known.verdict is not Verdict.INCOMPATIBLE:  # subtasks may differ in the type
            self._found[place] = StateVerdict(new.name, new.kind, verdict, how)
        return True

    def take_all(self) -> None:
        """They belong to a source or a sink, which is not opened here."""
        for info in self._before.values():
            self._found[info.name, _area(info.kind)] = StateVerdict(
                info.name, info.kind, Verdict.UNKNOWN, "sources and sinks are not opened here"
            )

    def columns(self, operator: Operator) -> None:
        """State in columns, timers and tables of the runtime were taken over as a whole."""
        for (name, area), info in self._before.items():
            if info.kind in (COLUMNS, _TIMERS, *_OF_RUNTIME):
                self._found[name, area] = StateVerdict(name, info.kind, Verdict.RESTORED)

    def asked(self, operator: Operator) -> None:
        """The operator is open: what it has that was not there before."""
        for part in getattr(operator.keyed, "_parts", {}).values():
            self._new(part.info)
        for part in operator.operator_state._parts.values():
            if part.kind is not None:
                self._new(part.info)
        state = getattr(operator, "state", None)
        for (name, area), info in list(self._before.items()):
            if info.kind == COLUMNS and getattr(state, "info", None) is not None:
                self._found[name, area] = _of_columns(info, state)

    def _new(self, info: StateInfo) -> None:
        place = (info.name, _area(info.kind))
        if place not in self._found and info.kind not in _OF_RUNTIME:
            self._found[place] = StateVerdict(info.name, info.kind, Verdict.NEW)

    def refused(self, error: StateMigrationError) -> None:
        """It would not start."""
        info = next((info for info in self._before.values() if info.name == error.state), None)
        how = f"{error.field}: {error.reason}" if error.field else error.reason
        kind = "" if info is None else info.kind
        self._found[error.state, _area(kind)] = StateVerdict(error.state, kind, Verdict.INCOMPATIBLE, how)

    def verdicts(self, *, whole: bool = True) -> list[StateVerdict]:
        """All of them; those that nobody has asked for are kept, if the operator came to its end."""
        verdict, how = (Verdict.KEPT, "nobody asks for it in open()") if whole else (Verdict.UNKNOWN, "")
        for (name, area), info in self._before.items():
            if (name, area) not in self._found:
                self._found[name, area] = StateVerdict(name, info.kind, verdict, how)
        return list(self._found.values())


def _of_columns(info: StateInfo, state: Any) -> StateVerdict:
    """State in arrays that was restored: which of its parts are others now."""
    changes: list[str] = []
    aggregates = info.schema.get("aggregates")
    if aggregates is not None:
        _names(changes, [name for name, *_ in aggregates], [name for name, *_ in state.info.schema["aggregates"]])
        before, now = (
            {name: given for name, _, given in some} for some in (aggregates, state.info.schema["aggregates"])
        )
        changes += [
            f"{name}: its input was {given} and is {now[name]}"
            for name, given in before.items()
            if now.get(name, given) != given
        ]
    else:
        before = info.schema.get("columns", {})
        now = {
            name: str(column.codec.data_type) for name, column in state.columns.items() if name not in state._unasked
        }
        _names(changes, _parts(before), _parts(now))
        changes += [f"{name}: {was} -> {now[name]}" for name, was in before.items() if now.get(name, was) != was]
    verdict = Verdict.MIGRATED if changes else Verdict.RESTORED
    return StateVerdict(info.name, info.kind, verdict, "; ".join(changes))


def _parts(columns: Iterable[str]) -> list[str]:
    """Names of aggregates or states that columns are of."""
    return list(dict.fromkeys(name.rpartition(":" if ":" in name else ".")[0] or name for name in columns))


def _names(changes: list[str], before: Iterable[str], now: Iterable[str]) -> None:
    was, known = list(before), list(now)
    changes += [f"{name}: added, begins empty" for name in known if name not in was]
    changes += [f"{name}: removed" for name in was if name not in known]


def _area(kind: str) -> str:
    """States of one name are apart by these."""
    return kind if kind in (COLUMNS, _TIMERS, *_OF_RUNTIME) else ""
