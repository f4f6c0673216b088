"""The base classes of operators.

Records pass through an operator as through a generator: ``apply`` takes an iterator and yields results, one record at a
time, so that user generators are pulled lazily. When user code raises, the frames of these generators are in the
traceback, and their locals ``self`` and ``value`` tell the operator and the record. So every loop over records must use
these two names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from firesteel.checkpoint.subtask_state import KeyKinds
from firesteel.common.coerce import make_coercer
from firesteel.common.own_copies import own_copy
from firesteel.common.typeinfo import TypeInformation
from firesteel.common.types import RowKind
from firesteel.core.errors import ProgramError, TypeMismatchError
from firesteel.core.short_repr import short_repr
from firesteel.functions.checkpointed import CheckpointedFunction, CheckpointListener
from firesteel.functions.coroutines import refuse_result
from firesteel.functions.functions import Function
from firesteel.functions.output_tag import OutputTag, tags_exist
from firesteel.functions.two_phase import Committable
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.operator_base.context import OperatorContext, TaskRuntimeContext
from firesteel.runtime.operator_base.initialization import InitializationContext, SnapshotContext
from firesteel.runtime.operator_base.restored import OperatorRestored, no_such_part
from firesteel.runtime.operator_base.side_outputs import SideRecord
from firesteel.runtime.operator_base.sites import UserCode
from firesteel.runtime.records.batch import Batch
from firesteel.runtime.records.rows import to_rows
from firesteel.state.backend import KeyedStateBackend
from firesteel.state.operator_state import HeapOperatorState
from firesteel.state.snapshots import KeyedSnapshot, Purpose, WrittenState

Coercer = Callable[[object], Any]
_NULL_LEAVES: Final = (
    "None may only pass between operators of one chain, and this one goes to another task, to a sink or to columns; "
    "take it out before that with filter(), use flat_map(), or declare no output_type"
)
KEYED: Final = "keyed"
"""Name of the part of an operator's state that is its keyed state backend."""


class KeyedPart(Protocol):
    """A part of an operator's state that is written by key group, as a ``KeyedStateBackend`` is."""

    def snapshot(self, slice_seconds: float = ..., purpose: Purpose = ...) -> KeyedSnapshot:
        """Begin a snapshot, as ``KeyedStateBackend.snapshot``."""

    def restore(self, written: Sequence[WrittenState]) -> None:
        """Take over restored state, as ``KeyedStateBackend.restore``."""


class Operator(UserCode):
    """One operator of one subtask.

    Life: ``open`` once, ``apply`` for each slice of a batch, ``close`` once, also after a failure.
    """

    expands: ClassVar[bool] = False
    """Whether it may make more results than it takes records; these are pulled in bounded slices."""

    keyed: KeyedStateBackend | None = None
    """The operator's keyed state, if it is on a keyed stream."""

    key_groups: range = range(1)
    """The key groups of this subtask; meaningless without keys."""

    may_tag: ClassVar[bool] = False
    """Whether its function may yield ``tag, value`` for side outputs. Such an operator has to expand, and to pass its
    results through ``coerce``."""

    writes_elsewhere: ClassVar[bool] = False
    """Whether an error of ``snapshot_state`` fails the task, and not only the checkpoint, because the operator may have
    written a part of its results, which must not be in the next checkpoint."""

    takes_changes: bool = False
    """Whether it handles rows of other kinds than insert (+I), or passes them on with their kinds."""

    null_outputs: tuple[str | None, ...] = ()
    """Outputs with a declared type to which a None was emitted: tags of side outputs; None stands for the main output.
    """

    gives_away: ClassVar[bool] = False
    """Whether nobody changes its results after it has emitted them, so that they need no copies."""

    counts: bool = True
    """Whether the operator has to count ``fewer``, because that does not follow from the counts of its stage."""

    fewer: int = 0
    """By how many its results are fewer than its records. Not used for the last operator of a stage, whose results are
    counted as they leave."""

    tagged: bool = False
    """Whether its results may contain ``SideRecord`` objects. Such an operator has to expand."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = spec.function
        self._opened: list[Function] = []
        self._foreign_functions: list[Any] = []  # functions that others open and close, such as a reader
        self._helpers: list[Any] = list(spec.key_selectors)
        self._tags: dict[str, tuple[TypeInformation, Coercer | None]] = {}
        self.operator_state = HeapOperatorState(spec.name, strict_integers=spec.strict_integers)
        self.restored: OperatorRestored | None = None
        self.coerce: Coercer | None = None
        if spec.output_type is not None:
            self.coerce = make_coercer(spec.output_type, strict_integers=spec.strict_integers)

    @property
    def blocking(self) -> bool:
        """Whether the function may wait for long, so that the task needs a thread of its own."""
        return bool(getattr(self.function, "blocking", False))

    def create(self, context: OperatorContext) -> None:
        """Create everything on which ``blocking`` depends; called once, before anything is opened or restored."""

    def uncommitted(self) -> tuple[tuple[int, tuple[Committable, ...]], ...] | None:
        """The committables that are not committed yet, by the checkpoint at which they were prepared.

        They become part of the checkpoint that is being taken. None if the operator never commits anything.
        """
        return None

    def open(self, context: OperatorContext) -> None:
        """Open the user's functions: key selectors and partitioners first, then the function of the operator."""
        runtime_context = self.runtime_context(context)
        for function in (*self._helpers, self.function):
            if isinstance(function, Function) and not any(function is other for other in self._opened):
                self._opened.append(function)
                if isinstance(function, CheckpointedFunction):
                    self.initialize(function)
                self.call_function(function, "open", runtime_context)
        if self.may_tag and (self.spec.extra.get("side_outputs") or tags_exist()):
            self.enable_tags()

    def initialize(self, function: CheckpointedFunction) -> None:
        """Let a function take over its restored state."""
        restored = self.restored is not None
        context = InitializationContext(self.name, self.operator_state, self.keyed, restored=restored)
        self.call_function(function, "initialize_state", context)

    def call_function(self, function: Any, method: str, *arguments: Any) -> None:
        """Call a method of a user's function that is not about a record.

        Raises:
            UnsupportedFeatureError: it returned an awaitable.
        """
        refuse_result(f"operator {self.name!r}", function, method, getattr(function, method)(*arguments))

    # -- checkpoints

    def with_site(self, context: OperatorContext) -> OperatorContext:
        """A copy of the context by which errors of ``make_durable``, in another thread, name this operator.

        For that the work is called from a frame with this operator as ``self``, which the report of failures looks for.
        """
        return replace(context, make_durable=lambda work: context.make_durable(partial(self._do, work)))

    def _do(self, work: Callable[[], None]) -> None:
        work()

    def add_function(self, function: Any) -> None:
        """Let a user's function that others open and close (such as a reader) take part in checkpoints."""
        self._foreign_functions.append(function)
        if isinstance(function, CheckpointedFunction):
            self.initialize(function)

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        """Its parts with state by key, by names that checkpoints contain; operator state is not among them."""
        return {} if self.keyed is None else {KEYED: self.keyed}

    def key_kinds(self) -> KeyKinds | None:
        """The kinds of keys of its state; None if the state is in columns, whose types are known."""
        return None

    def restore(self, restored: OperatorRestored) -> None:
        """Take over state; called before ``open``.

        Raises:
            StateRestoreError: the operator has no such part, or an operator of another kind has written it.
            StateMigrationError: the type of a state has changed.
        """
        self.restored = restored
        place = (0, 1) if restored.alone else (restored.subtask, restored.parallelism)
        self.operator_state.restore(restored.operator, *place)
        self.restore_parts(restored.keyed)

    def restore_parts(self, parts: Mapping[str, Sequence[WrittenState]]) -> None:
        """Restore each part from what former subtasks have written of it."""
        own_parts = self.snapshot_parts()
        for name, written in parts.items():
            if name not in own_parts:
                raise no_such_part(self.name, name, own_parts)
            own_parts[name].restore(written)

    def defer_migrations(self) -> None:
        """Put off migrations of restored state to changed types; called before ``open``."""
        if self.keyed is not None:
            self.keyed.defer_migrations()

    def take_migrations(self) -> Sequence[Callable[[], None]]:
        """The migrations that were put off; called after ``open``. A thread runs them before the first record."""
        return () if self.keyed is None else self.keyed.take_migrations()

    def snapshot_state(self, context: SnapshotContext) -> None:
        """Bring operator state up to date at a barrier; calls the user's ``snapshot_state``."""
        for function in (*self._opened, *self._foreign_functions):
            if isinstance(function, CheckpointedFunction):
                self.call_function(function, "snapshot_state", context)

    def check_fit_for_checkpoints(self) -> None:
        """Check that a checkpoint may contain this operator; called before any operator snapshots its state.

        Raises:
            ProgramError: it must not.
        """

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """Tell the functions that a checkpoint is complete, and with it all earlier ones."""
        for function in (*self._opened, *self._foreign_functions):
            if isinstance(function, CheckpointListener):
                self.call_function(function, "notify_checkpoint_complete", checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Tell the functions that a checkpoint was given up."""
        for function in (*self._opened, *self._foreign_functions):
            if isinstance(function, CheckpointListener):
                self.call_function(function, "notify_checkpoint_aborted", checkpoint_id)

    def enable_tags(self) -> None:
        """Look for pairs of tag and value among the results from now on; before, that would only cost time."""
        if self.tagged:
            return
        self.tagged = True
        coerce, is_tagged, side_record = self.coerce, self.is_tagged, self.side_record

        def route(value: Any) -> Any:
            if is_tagged(value):
                return side_record(value)
            return value if coerce is None else coerce(value)

        self.coerce = route

    @staticmethod
    def is_tagged(value: Any) -> bool:
        """Whether a result is a pair of tag and value."""
        return value.__class__ is tuple and len(value) == 2 and value[0].__class__ is OutputTag

    def side_record(self, pair: tuple[OutputTag[Any], Any]) -> SideRecord:
        """Make a side record of a pair of tag and value, which is fitted to the type of the tag.

        Raises:
            ProgramError: the type of the tag differs from that by which the side output is read or was used before.
        """
        tag, value = pair
        tag_type = self._tags.get(tag.tag_id)
        if tag_type is None:
            declared = self.spec.extra.get("side_outputs", {}).get(tag.tag_id, tag.type_info)
            coerce = make_coercer(declared, strict_integers=self.spec.strict_integers)
            tag_type = self._tags[tag.tag_id] = (declared, coerce)
        type_info, coerce = tag_type
        if type_info is not tag.type_info and type_info != tag.type_info:
            raise ProgramError(
                f"operator {self.name!r} yields to side output {tag.tag_id!r} with the type {tag.type_info}, but it "
                f"has the type {type_info} elsewhere: use one OutputTag for both"
            )
        if coerce is not None:
            value = coerce(value) if value is not None else self.pass_null(tag.tag_id)
        return SideRecord(tag.tag_id, value if self.spec.object_reuse else own_copy(value))

    def pass_null(self, tag: str | None = None) -> Any:
        """Let a result of None pass inside the chain, whatever the declared type; it is refused where it would leave.

        As in PyFlink, types count where records are written. So ``map(f, output_type=...)`` may return None for records
        that a ``filter`` behind it removes.
        """
        if tag not in self.null_outputs:
            self.null_outputs = (*self.null_outputs, tag)
        return None

    def refuse_nulls(self, records: Sequence[Any], tag: str | None = None) -> None:
        """Refuse results of None, which leave the chain or are about to become columns.

        Args:
            records: results of the main output, or of a side output.
            tag: tag id of the side output.

        Raises:
            TypeMismatchError: a result is None.
        """
        declared = self.spec.output_type if tag is None else self._tags[tag][0]
        for value in records:
            if value is None:
                raise TypeMismatchError("", str(declared), "None", _NULL_LEAVES)

    def refuse_changes(self, batch: Batch) -> None:
        """Refuse rows of other kinds than insert (+I) if the operator would take them for inserted ones.

        Raises:
            ProgramError: there is such a row.
        """
        kinds = batch.kinds
        if kinds is None or self.takes_changes:
            return
        for position in np.flatnonzero(kinds)[:1].tolist():
            shown = short_repr(to_rows(batch.slice(position, position + 1)).values[0])
            raise ProgramError(
                f"operator {self.name!r} takes rows that are inserted (+I) only, and got {shown} of the kind "
                f"{RowKind(int(kinds[position]))}"
            )

    def runtime_context(self, context: OperatorContext) -> TaskRuntimeContext:
        """Create the context for the user's ``open``."""
        return TaskRuntimeContext(context.info, self.name, self.keyed, context.metrics)

    def add_helper(self, helper: Any) -> None:
        """Open and close a key selector or partitioner of an edge behind this operator together with its function."""
        self._helpers.append(helper)

    def close(self) -> None:
        """Close everything that was opened, the function first. An error is raised after all others are closed."""
        first_error: BaseException | None = None
        while self._opened:
            try:
                self.call_function(self._opened.pop(), "close")
            except BaseException as error:  # user code
                first_error = first_error or error
        self.operator_state.close()
        if first_error is not None:
            raise first_error


class TypedOutput(NamedTuple):
    """An output of an operator whose type is declared: the main output, or a side output.

    Attributes:
        operator: the operator.
        tag: tag id of the side output; None = the main output.
    """

    operator: Operator
    tag: str | None = None

    @property
    def gave_null(self) -> bool:
        """Whether one of its results was None although they have a declared type."""
        return self.tag in self.operator.null_outputs

    def refuse_nulls(self, records: Sequence[Any]) -> None:
        """Refuse records of None (``Operator.refuse_nulls``)."""
        self.operator.refuse_nulls(records, self.tag)


class Transform(Operator, ABC):
    """An operator with results, which takes single records."""

    takes_changes = True

    one_to_one: ClassVar[bool] = False
    """Whether it makes one result for each record, and never looks at timestamps."""

    takes_slices: ClassVar[bool] = False
    """Whether it gets whole slices by ``apply_slice``, if it is alone in its stage and records have no row kinds."""

    looks_ahead: bool = False
    """Whether ``look_ahead`` has to be called before records come, if it is the first operator of its stage."""

    def look_ahead(self, records: Sequence[Any], input_index: int) -> None:
        """Prepare for records that will come next, each exactly once; called if ``looks_ahead`` holds."""

    def passes_columns(self, batch: pa.RecordBatch) -> bool:
        """Whether it would emit the rows of this batch unchanged, so that they may stay columns."""
        return False

    @abstractmethod
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """Yield the results for records, which are pulled as they are needed."""

    def apply_slice(self, values: Sequence[Any], stamps: Sequence[Any] | None, input_index: int) -> Iterator[Any]:
        """Like ``apply``, for the records of a whole slice; called if ``takes_slices`` holds.

        Args:
            values: the records.
            stamps: their timestamps; None if no record has one.
            input_index: index of the input over which they came.
        """
        raise NotImplementedError(f"{type(self).__name__} does not take slices")  # our own bug


def method_of(function: Any, base: type, method: str) -> Callable[..., Any]:
    """The callable to run for each record: a method of a function object, or a plain function itself."""
    if isinstance(function, base):
        return getattr(function, method)  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise ProgramError(f"{function!r} is neither a {base.__name__} nor can it be called")


def not_iterable(what: str, results: Any) -> ProgramError:
    """The error for a function that has to return an iterable and does not."""
    return ProgramError(
        f"{what} returned {short_repr(results, 80)} ({type(results).__name__}); it has to return an iterable, yield "
        "its results, or return None"
    )


def is_iterable(value: Any) -> bool:
    """Whether ``iter(value)`` would work."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
