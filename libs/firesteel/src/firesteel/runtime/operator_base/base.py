"""What operators have in common.

Records pass through an operator as through a generator: ``apply`` takes an iterator and yields results, one record at a
time, so that user generators are pulled lazily. When user code raises, the generators' frames are in the traceback:
their locals ``self`` and ``value`` tell the operator and the record. So every loop over records names them like this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, Protocol

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
from firesteel.runtime.operator_base.sites import UserCode as UserCode
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
"""Name of the part that is the keyed state backend."""


class KeyedPart(Protocol):
    """State by key group: a state backend, or what is written as such a one."""

    def snapshot(self, slice_seconds: float = ..., purpose: Purpose = ...) -> KeyedSnapshot:
        """See ``KeyedStateBackend``."""

    def restore(self, written: Sequence[WrittenState]) -> None:
        """See ``KeyedStateBackend``."""


class Operator(UserCode):
    """One operator of one subtask.

    Life: ``open`` once; ``apply`` for each slice of a batch; ``close`` once, also after a failure.
    """

    expands: ClassVar[bool] = False
    """It may give more results than it takes records: results are pulled in bounded chunks."""

    keyed: KeyedStateBackend | None = None
    """Its keyed state, if it is on a keyed stream."""

    key_groups: range = range(1)
    """Its own key groups; without keys they mean nothing."""

    may_tag: ClassVar[bool] = False
    """Its function may yield ``tag, value``. Such an operator has to expand, and passes its results through ``coerce``.
    """

    writes_elsewhere: ClassVar[bool] = False
    """What its ``snapshot_state`` raises fails the task and not the checkpoint alone: it may have written a half, which
    must not be in the next one."""

    takes_changes: ClassVar[bool] = False
    """Rows of other kinds than +I mean to it what they say, or pass it with their kinds."""

    null_outputs: tuple[str | None, ...] = ()
    """Tags of the side outputs, None being the main output, that have a declared type, and were given None."""

    gives_away: ClassVar[bool] = False
    """Nobody changes its results when it has given them."""

    counts: bool = True
    """``fewer`` is needed: nobody could tell it from what its stage has taken and given."""

    fewer: int = 0
    """So many results fewer than records it has given; of the last operator of a stage what leaves is counted."""

    tagged: bool = False
    """Its results may hold ``SideRecord`` objects. Such an operator has to expand."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = spec.function
        self._opened: list[Function] = []
        self._beside: list[Any] = []
        self._helpers: list[Any] = list(spec.key_selectors)
        self._tags: dict[str, tuple[TypeInformation, Coercer | None]] = {}
        self.operator_state = HeapOperatorState(spec.name, strict_integers=spec.strict_integers)
        self.restored: OperatorRestored | None = None
        self.coerce: Coercer | None = None
        if spec.output_type is not None:
            self.coerce = make_coercer(spec.output_type, strict_integers=spec.strict_integers)

    @property
    def blocking(self) -> bool:
        """The function may wait for long."""
        return bool(getattr(self.function, "blocking", False))

    def create(self, context: OperatorContext) -> None:
        """Make what ``blocking`` depends on; once, before anything is opened or restored."""

    def uncommitted(self) -> tuple[tuple[int, tuple[Committable, ...]], ...] | None:
        """What it has prepared, which the checkpoint's completion commits, by the checkpoint at which it was prepared.

        None: it never commits anything.
        """
        return None

    def open(self, context: OperatorContext) -> None:
        """Get ready; calls the user's ``open``: of key selectors and partitioners, then of the function."""
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
        """Have a function take over what was restored."""
        restored = self.restored is not None
        context = InitializationContext(self.name, self.operator_state, self.keyed, restored=restored)
        self.call_function(function, "initialize_state", context)

    def call_function(self, function: Any, method: str, *arguments: Any) -> None:
        """Call a method of one of the user's functions that is not about a record.

        Raises:
            UnsupportedFeatureError: it gave something to await.
        """
        refuse_result(f"operator {self.name!r}", function, method, getattr(function, method)(*arguments))

    # -- checkpoints

    def with_site(self, context: OperatorContext) -> OperatorContext:
        """The context; what is done for this operator by another thread is seen to be its own when it raises."""
        return replace(context, make_durable=lambda work: context.make_durable(partial(self._do, work)))

    def _do(self, work: Callable[[], None]) -> None:
        work()

    def add_function(self, function: Any) -> None:
        """One of the user's functions that somebody else opens and closes (a reader) takes part in checkpoints."""
        self._beside.append(function)
        if isinstance(function, CheckpointedFunction):
            self.initialize(function)

    def snapshot_parts(self) -> Mapping[str, KeyedPart]:
        """Its parts with state by key, by names that stay the same; operator state is beside them."""
        return {} if self.keyed is None else {KEYED: self.keyed}

    def key_kinds(self) -> KeyKinds | None:
        """What is known of the keys of its state; None if it stands in columns, which know their types."""
        return None

    def restore(self, restored: OperatorRestored) -> None:
        """Take over state, before ``open``.

        Raises:
            StateRestoreError: the operator has no such part, or it was written by something else.
            StateMigrationError: a state is of another type now.
        """
        self.restored = restored
        place = (0, 1) if restored.alone else (restored.subtask, restored.parallelism)
        self.operator_state.restore(restored.operator, *place)
        self.restore_parts(restored.keyed)

    def restore_parts(self, parts: Mapping[str, Sequence[WrittenState]]) -> None:
        """Give each part what was written of it."""
        mine = self.snapshot_parts()
        for name, written in parts.items():
            if name not in mine:
                raise no_such_part(self.name, name, mine)
            mine[name].restore(written)

    def defer_migrations(self) -> None:
        """Before ``open``: restored state may be brought to its types of now later."""
        if self.keyed is not None:
            self.keyed.defer_migrations()

    def take_migrations(self) -> Sequence[Callable[[], None]]:
        """Behind ``open``: what is left to do of that, before any record comes; by a thread that may wait."""
        return () if self.keyed is None else self.keyed.take_migrations()

    def snapshot_state(self, context: SnapshotContext) -> None:
        """A barrier is here: bring operator state up to date; calls the user's ``snapshot_state``."""
        for function in (*self._opened, *self._beside):
            if isinstance(function, CheckpointedFunction):
                self.call_function(function, "snapshot_state", context)

    def check_fit_for_checkpoints(self) -> None:
        """A barrier is here, and no operator has done anything about it yet.

        Raises:
            ProgramError: no checkpoint may have this operator in it.
        """

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete, and with it all before it."""
        for function in (*self._opened, *self._beside):
            if isinstance(function, CheckpointListener):
                self.call_function(function, "notify_checkpoint_complete", checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint was given up."""
        for function in (*self._opened, *self._beside):
            if isinstance(function, CheckpointListener):
                self.call_function(function, "notify_checkpoint_aborted", checkpoint_id)

    def enable_tags(self) -> None:
        """From now on results may be pairs of tag and value. As long as there are no tags, nothing looks for them."""
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
        """What a pair of tag and value becomes; the value is fitted to the tag's type.

        Raises:
            ProgramError: the tag has another type than that by which the side output is read, or was used before.
        """
        tag, value = pair
        known = self._tags.get(tag.tag_id)
        if known is None:
            declared = self.spec.extra.get("side_outputs", {}).get(tag.tag_id, tag.type_info)
            coerce = make_coercer(declared, strict_integers=self.spec.strict_integers)
            known = self._tags[tag.tag_id] = (declared, coerce)
        if known[0] is not tag.type_info and known[0] != tag.type_info:
            raise ProgramError(
                f"operator {self.name!r} yields to side output {tag.tag_id!r} with the type {tag.type_info}, but it "
                f"has the type {known[0]} elsewhere: use one OutputTag for both"
            )
        if known[1] is not None:
            value = known[1](value) if value is not None else self.pass_null(tag.tag_id)
        return SideRecord(tag.tag_id, value if self.spec.object_reuse else own_copy(value))

    def pass_null(self, tag: str | None = None) -> Any:
        """A result is None: it goes on inside the chain whatever the declared type, and is looked for where it leaves.

        As in PyFlink, a type counts where records are written: so ``map(f, output_type=...)`` may give None for records
        that a ``filter`` behind it takes out.
        """
        if tag not in self.null_outputs:
            self.null_outputs = (*self.null_outputs, tag)
        return None

    def refuse_nulls(self, records: Sequence[Any], tag: str | None = None) -> None:
        """Results that leave the chain, or are made columns, have to be of the declared type.

        Args:
            records: of the main output, or of a side output.
            tag: of the side output.

        Raises:
            TypeMismatchError: one of them is None; the local ``value`` is the record at hand.
        """
        declared = self.spec.output_type if tag is None else self._tags[tag][0]
        for value in records:
            if value is None:
                raise TypeMismatchError("", str(declared), "None", _NULL_LEAVES)

    def refuse_changes(self, batch: Batch) -> None:
        """Raises:
        ProgramError: a row is not inserted, and the operator would take it for one that is.
        """
        kinds = batch.kinds
        if kinds is None or self.takes_changes:
            return
        for position, kind in enumerate(kinds):
            if kind:
                shown = short_repr(to_rows(batch.slice(position, position + 1)).values[0])
                raise ProgramError(
                    f"operator {self.name!r} takes rows that are inserted (+I) only, and got {shown} of the kind "
                    f"{RowKind(int(kind))}"
                )

    def runtime_context(self, context: OperatorContext) -> TaskRuntimeContext:
        """What the user's ``open`` is handed."""
        return TaskRuntimeContext(context.info, self.name, self.keyed, context.metrics)

    def add_helper(self, helper: Any) -> None:
        """A key selector or partitioner of an edge behind this operator lives as long as its function."""
        self._helpers.append(helper)

    def close(self) -> None:
        """Release everything; closes what was opened, the function first, and all of it whatever one of them raises."""
        first: BaseException | None = None
        while self._opened:
            try:
                self.call_function(self._opened.pop(), "close")
            except BaseException as error:  # user code
                first = first or error
        self.operator_state.close()
        if first is not None:
            raise first


class TypedOutput(NamedTuple):
    """The main output of an operator, or one of its side outputs, where its type is declared or may be.

    Attributes:
        operator: whose results they are.
        tag: of the side output; None: the main output.
    """

    operator: Operator
    tag: str | None = None

    @property
    def gave_null(self) -> bool:
        """Whether one of its results was None although they have a declared type."""
        return self.tag in self.operator.null_outputs

    def refuse_nulls(self, records: Sequence[Any]) -> None:
        """See ``Operator.refuse_nulls``."""
        self.operator.refuse_nulls(records, self.tag)


class Transform(Operator, ABC):
    """An operator with results."""

    takes_changes = True

    one_to_one: ClassVar[bool] = False
    """It gives one result for each record, and never looks at timestamps."""

    takes_slices: ClassVar[bool] = False
    """If it is alone in its stage it gets the records of a slice by ``apply_slice``; no kinds go with them."""

    looks_ahead: bool = False
    """It is to be told of records by ``look_ahead`` before it gets them, if it is the first to get them."""

    def look_ahead(self, records: Sequence[Any], input_index: int) -> None:
        """These records come next, all of them and each once; called if it ``looks_ahead``."""

    def passes_columns(self, batch: pa.RecordBatch) -> bool:
        """Whether it would give the rows of this batch as they are."""
        return False

    @abstractmethod
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The results for these records."""

    def apply_slice(self, values: Sequence[Any], stamps: Sequence[Any] | None, input_index: int) -> Iterator[Any]:
        """The same for records that are all there; called if it ``takes_slices``.

        Args:
            values: the records.
            stamps: their timestamps; None if none has one.
            input_index: where they came in.
        """
        raise NotImplementedError(f"{type(self).__name__} does not take slices")  # our own bug


def method_of(function: Any, base: type, method: str) -> Callable[..., Any]:
    """The callable to run for each record: the method if it is an instance of the function class, else itself."""
    if isinstance(function, base):
        return getattr(function, method)  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise ProgramError(f"{function!r} is neither a {base.__name__} nor can it be called")


def not_iterable(what: str, results: Any) -> ProgramError:
    """The error for a function that has to give an iterable and does not."""
    return ProgramError(
        f"{what} returned {short_repr(results, 80)} ({type(results).__name__}); it has to return an iterable, yield "
        "its results, or return None"
    )


def is_iterable(value: Any) -> bool:
    """Whether ``iter(value)`` would work."""
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")
