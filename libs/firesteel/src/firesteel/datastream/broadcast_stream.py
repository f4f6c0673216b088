"""Streams with broadcast state: what ``broadcast(descriptor)`` and ``connect(broadcast_stream)`` give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from firesteel.common.typeinfo import TypeDescriptor
from firesteel.core.errors import GraphError
from firesteel.datastream import checks
from firesteel.functions.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from firesteel.functions.state import MapStateDescriptor
from firesteel.graph.specs import OperatorKind, PartitionerKind

if TYPE_CHECKING:
    from firesteel.datastream.data_stream import DataStream

__all__ = ["BroadcastConnectedStream", "BroadcastMethods", "BroadcastStream"]


class BroadcastMethods:
    """``broadcast()`` of all streams."""

    if TYPE_CHECKING:

        def _partition(self, kind: PartitionerKind) -> DataStream: ...

    @overload
    def broadcast(self, broadcast_state_descriptor: None = None) -> DataStream: ...
    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...
    def broadcast(
        self, broadcast_state_descriptor: Any = None, *other_broadcast_state_descriptors: Any
    ) -> DataStream | BroadcastStream:
        """Sends each record to all subtasks; with descriptors, as a ``BroadcastStream`` for ``connect``."""
        spread = self._partition(PartitionerKind.BROADCAST)
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return spread
        return BroadcastStream(spread, [broadcast_state_descriptor, *other_broadcast_state_descriptors])


class BroadcastStream:
    """A stream whose records all subtasks get, with the states that are made of them.

    Args:
        input_stream: already partitioned by ``broadcast()``.
        broadcast_state_descriptors: of the states.
    """

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: list[MapStateDescriptor]) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = _checked(broadcast_state_descriptors)


class BroadcastConnectedStream:
    """A stream, keyed or not, and a broadcast stream as the inputs of one function.

    Args:
        non_broadcast_stream: the function sees its records with read access to the broadcast state.
        broadcast_stream: the function sees its records with write access.
        broadcast_state_descriptors: of the states.
    """

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: list[MapStateDescriptor],
    ) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = _checked(broadcast_state_descriptors)

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeDescriptor | None = None,
    ) -> DataStream:
        """One record of either stream in, any number of results out.

        Args:
            func: a ``KeyedBroadcastProcessFunction`` if the stream is keyed, else a ``BroadcastProcessFunction``.
            output_type: of the results.

        Raises:
            TypeError: the function is of the other class.
        """
        stream = self.non_broadcast_stream
        key_selector = getattr(stream, "_key_selector", None)
        if key_selector is None:
            keyed = isinstance(func, KeyedBroadcastProcessFunction)
            hint = "; key the stream first: key_by(...).connect(broadcast_stream)" if keyed else ""
            checks.check_class("process", func, BroadcastProcessFunction, hint=hint)
        else:
            hint = " (the stream is keyed)"
            checks.check_class("process", func, KeyedBroadcastProcessFunction, hint=hint)
        declared = checks.declared_type("output_type", output_type)
        made = stream._environment._add(
            "Co-Process-Broadcast" if key_selector is None else "Co-Process-Broadcast-Keyed",
            OperatorKind.BROADCAST_PROCESS if key_selector is None else OperatorKind.KEYED_BROADCAST_PROCESS,
            func,
            (stream._inputs, self.broadcast_stream.input_stream._inputs),
            coerce_to=checks.coerced(declared),
            key_selectors=() if key_selector is None else (key_selector,),
            extra={"broadcast_states": tuple(self.broadcast_state_descriptors)},
        )
        return stream._result_of(made, declared)


def _checked(descriptors: Any) -> list[MapStateDescriptor]:
    """The descriptors, each of its own name.

    Raises:
        TypeError: one is no MapStateDescriptor.
        GraphError: there is none, two have the same name, or one has a time-to-live.
    """
    found: dict[str, MapStateDescriptor] = {}
    for descriptor in descriptors:
        if not isinstance(descriptor, MapStateDescriptor):
            raise TypeError(f"broadcast() takes MapStateDescriptors, not {type(descriptor).__name__}: {descriptor!r}")
        if descriptor.name in found:
            raise GraphError(f"broadcast() was given two states of the name {descriptor.name!r}: give each its own")
        if descriptor.ttl_config is not None:
            raise GraphError(
                f"broadcast state {descriptor.name!r} can't have a time-to-live: remove its entries instead"
            )
        found[descriptor.name] = descriptor
    if not found:
        raise GraphError("broadcast() without a state descriptor gives a DataStream, not a BroadcastStream")
    return list(found.values())
