"""Parts of tumbling windows with accumulators, which senders gather before the shuffle: what they send, how it is read.

A window that reduces its records needs none of this: the result of a sender is an ordinary record of the same window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from typing_extensions import override

from firesteel.core.call_each import call_each
from firesteel.expressions.keys import ManyKeys
from firesteel.functions.functions import Function, KeySelector
from firesteel.functions.window_functions import ProcessWindowFunction
from firesteel.graph.specs import OperatorKind, OperatorSpec
from firesteel.runtime.operator_base.base import method_of
from firesteel.windowing.assigners import TumblingEventTimeWindows
from firesteel.windowing.spec import WindowGathering, WindowSpec

_EMPTY: Final = object()
"""Stands for an accumulator to which no record was added."""


class WindowPart(NamedTuple):
    """The part of a window of one key that a sender has gathered; its timestamp is the last one of the window.

    Attributes:
        key: the key.
        accumulator: accumulator of the records that the sender has seen.
    """

    key: Any
    accumulator: Any


def gathers_in_parts(spec: OperatorSpec) -> bool:
    """Whether senders may gather parts of the windows of an operator, without changing its results."""
    if spec.kind is not OperatorKind.ALIGNED_WINDOW:
        return False
    function = spec.function.gather_function
    return (
        type(spec.function.assigner) is TumblingEventTimeWindows  # a part belongs to exactly one window
        and bool(getattr(function, "combinable", False))
        and not getattr(function, "takes_first", False)
    )


def takes_parts(spec: OperatorSpec) -> bool:
    """Whether an operator gets ``WindowPart`` from senders, and not reduced records."""
    return gathers_in_parts(spec) and spec.function.gathering is WindowGathering.AGGREGATE


def sender_of(spec: OperatorSpec) -> OperatorSpec:
    """Specify the operator with which a sender gathers parts; it emits ``WindowPart``, or reduced records."""
    windows: WindowSpec = replace(spec.function, window_function=None, allowed_lateness=0, late_tag=None)
    if windows.gathering is WindowGathering.AGGREGATE:
        windows = replace(windows, gather_function=_Gathered(windows.gather_function), window_function=_Parts())
    return replace(spec, function=windows, output_type=None)


def reader_of(spec: OperatorSpec) -> OperatorSpec:
    """Specify the reading operator so that it takes ``WindowPart`` beside records."""
    windows: WindowSpec = replace(spec.function, gather_function=_Merged(spec.function.gather_function))
    return replace(spec, function=windows, key_selectors=tuple(map(key_of_parts, spec.key_selectors)))


def key_of_parts(selector: Any) -> Any:
    """Wrap a key selector so that it takes ``WindowPart`` beside records."""
    return _KeysOfParts(selector) if isinstance(selector, ManyKeys) else _KeyOfParts(selector)


class _KeyOfParts(KeySelector[Any, Any]):
    """The user's key selector, applied to the key that a ``WindowPart`` carries."""

    def __init__(self, selector: Any) -> None:
        self._selector, self._key_of = selector, method_of(selector, KeySelector, "get_key")

    def open(self, runtime_context: Any) -> None:
        if isinstance(self._selector, Function):
            self._selector.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._selector, Function):
            self._selector.close()

    @override
    def get_key(self, value: Any) -> Any:
        return value.key if value.__class__ is WindowPart else self._key_of(value)


class _KeysOfParts(ManyKeys):
    """Like ``_KeyOfParts``, for a selector that computes the keys of many records together."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector

    def __call__(self, value: Any) -> Any:
        return value.key if value.__class__ is WindowPart else self._selector(value)

    @override
    def keys_of(self, records: Sequence[Any]) -> Sequence[Any]:
        if any(record.__class__ is WindowPart for record in records):
            return call_each(self, records)
        keys: Sequence[Any] = self._selector.keys_of(records)
        return keys


class _Gathered(Function):
    """Wraps the program's aggregate function so that its result is the accumulator."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.create_accumulator, self.add, self.merge = function.create_accumulator, function.add, function.merge

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return bool(getattr(self._function, "blocking", False))

    def open(self, runtime_context: Any) -> None:
        self._function.open(runtime_context)

    def close(self) -> None:
        self._function.close()

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


class _Merged(_Gathered):
    """Wraps the program's aggregate function so that it takes ``WindowPart`` beside records.

    It never merges an empty accumulator.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.get_result = function.get_result  # type: ignore[method-assign]
        add, merge, create = function.add, function.merge, function.create_accumulator

        def added(value: Any, accumulator: Any) -> Any:
            if value.__class__ is WindowPart:
                return value.accumulator if accumulator is _EMPTY else merge(accumulator, value.accumulator)
            return add(value, create() if accumulator is _EMPTY else accumulator)

        self.add, self.create_accumulator = added, lambda: _EMPTY


class _Parts(ProcessWindowFunction[Any, Any, Any, Any]):
    """A window function whose result is the accumulator itself, as a ``WindowPart`` to be combined further."""

    @override
    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterable[Any]:
        return [WindowPart(key, accumulator) for accumulator in elements]
