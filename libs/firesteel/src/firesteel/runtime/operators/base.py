"""What operators have in common.

Records pass through an operator as through a generator: ``apply`` takes an iterator and yields results, one record at a
time, so that user generators are pulled lazily. When user code raises, the generators' frames are in the traceback:
their locals ``self`` and ``value`` tell the operator and the record. So every loop over records names them like this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from firesteel.common.coerce import make_coercer
from firesteel.core.errors import ProgramError
from firesteel.core.short_repr import short_repr
from firesteel.functions.functions import Function
from firesteel.graph.key_hash import stable_hash
from firesteel.graph.specs import OperatorSpec
from firesteel.runtime.context import OperatorContext, TaskRuntimeContext
from firesteel.state.heap import HeapKeyedState

Coercer = Callable[[object], Any]


class UserCode:
    """Whatever runs user code; found in tracebacks by the local name ``self``.

    Attributes:
        name: of the operator, as shown to people.
    """

    name: str


class Operator(UserCode):
    """One operator of one subtask.

    Life: ``open`` once; ``apply`` for each slice of a batch; ``close`` once, also after a failure.
    """

    expands: ClassVar[bool] = False
    """It may give more results than it takes records: results are pulled in bounded chunks."""

    keyed: HeapKeyedState | None = None
    """Its keyed state, if it is on a keyed stream."""

    tagged: bool = False
    """Its results may hold ``SideRecord`` objects. Such an operator has to expand."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = spec.function
        self._opened: list[Function] = []
        self._helpers: list[Any] = list(spec.key_selectors)
        self.coerce: Coercer | None = None
        if spec.output_type is not None:
            self.coerce = make_coercer(spec.output_type, strict_integers=spec.strict_integers)

    @property
    def blocking(self) -> bool:
        """The function may wait for long."""
        return bool(getattr(self.function, "blocking", False))

    def open(self, context: OperatorContext) -> None:
        """Get ready; calls the user's ``open``: of key selectors and partitioners, then of the function."""
        runtime_context = self.runtime_context(context)
        for function in (*self._helpers, self.function):
            if isinstance(function, Function) and not any(function is other for other in self._opened):
                self._opened.append(function)
                function.open(runtime_context)

    def runtime_context(self, context: OperatorContext) -> TaskRuntimeContext:
        """What the user's ``open`` is handed."""
        return TaskRuntimeContext(context.info, self.name, self.keyed)

    def add_helper(self, helper: Any) -> None:
        """A key selector or partitioner of an edge behind this operator lives as long as its function."""
        self._helpers.append(helper)

    def close(self) -> None:
        """Release everything; closes what was opened, the function first."""
        while self._opened:
            self._opened.pop().close()


class Transform(Operator, ABC):
    """An operator with results."""

    @abstractmethod
    def apply(self, records: Iterator[Any], input_index: int) -> Iterator[Any]:
        """The results for these records."""


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


class KeyCheck:
    """Checks keys at the door of a keyed operator: each type in full at first sight, then by class only.

    Partitioners have hashed every key before; this catches a key selector that gives another key the second time.
    """

    def __init__(self) -> None:
        self.seen: set[type] = set()

    def __call__(self, key: Any) -> None:
        """Raises:
        KeyTypeError: a value of this type can't be a key.
        """
        stable_hash(key)
        hash(key)
        self.seen.add(key.__class__)
