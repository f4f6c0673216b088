"""Settings of an operator, shared by streams and sinks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from firesteel.core.errors import GraphError, UnsupportedFeatureError
from firesteel.datastream.checks import MAX_PARALLELISM, some_text, whole_number
from firesteel.datastream.slot_sharing_group import SlotSharingGroup
from firesteel.graph.stream_graph import ChainingStrategy, Transformation

__all__ = ["OperatorSettings", "group_name"]


def group_name(group: str | SlotSharingGroup) -> str:
    """The name of a slot sharing group.

    Raises:
        UnsupportedFeatureError: the group names resources.
        TypeError, ValueError: it is neither a non-empty name nor a group.
    """
    if isinstance(group, SlotSharingGroup):
        if group.has_resources:
            raise UnsupportedFeatureError(
                f"slot sharing group {group.get_name()!r}: slots with resources of their own (fine-grained resource "
                "management) are not in this version of firesteel; all slots are equal"
            )
        return group.get_name()
    return some_text("the slot sharing group", group)


class OperatorSettings(ABC):
    """Settings of the operator at the end of a stream; all methods change it and return the stream or sink itself."""

    @abstractmethod
    def _operator(self, method: str) -> Transformation:
        """The operator that ``method`` changes."""

    def name(self, name: str) -> Self:
        """Sets the name that plans, logs and metrics show."""
        self._operator("name").name = some_text("the name", name)
        return self

    def uid(self, uid: str) -> Self:
        """Sets the identity by which the operator's state is found again, unique within the job."""
        self._operator("uid").uid = some_text("the uid", uid)
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Sets the operator's id itself: 32 lower-case hex digits. Meant for repairs; prefer ``uid``.

        Raises:
            ValueError: it is not 32 lower-case hex digits.
        """
        text = some_text("the uid hash", uid_hash)
        if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
            raise ValueError(f"the uid hash {text!r} is not 32 lower-case hex digits")
        self._operator("set_uid_hash").uid_hash = text
        return self

    def set_description(self, description: str) -> Self:
        """Sets the longer text that plans show."""
        self._operator("set_description").description = some_text("the description", description)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the number of subtasks.

        Raises:
            ValueError: less than 1.
            GraphError: the operator can't be parallel and more than 1 is asked for.
        """
        operator = self._operator("set_parallelism")
        whole_number("the parallelism", parallelism, 1)
        if operator.non_parallel and parallelism != 1:
            raise GraphError(
                f"operator {operator.name!r}: the parallelism of a non-parallel operator is 1, not {parallelism}; "
                "set the parallelism of the operators behind it"
            )
        operator.parallelism, operator.own_parallelism = parallelism, True
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Sets the number of key groups, which bounds the parallelism for the life of the state.

        Raises:
            ValueError: not between 1 and 32768.
        """
        operator = self._operator("set_max_parallelism")
        operator.max_parallelism = whole_number("the max parallelism", max_parallelism, 1, MAX_PARALLELISM)
        return self

    def force_non_parallel(self) -> Self:
        """Fixes parallelism and max parallelism at 1."""
        operator = self._operator("force_non_parallel")
        operator.parallelism = operator.max_parallelism = 1
        operator.non_parallel = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Sets how long results may wait for their batch to fill: 0 = not at all, -1 = until it is full.

        Raises:
            ValueError: less than -1.
        """
        operator = self._operator("set_buffer_timeout")
        operator.buffer_timeout_ms = whole_number("the buffer timeout", timeout_millis, -1)
        return self

    def start_new_chain(self) -> Self:
        """Starts a task of its own with this operator; operators behind it may be chained to it."""
        self._operator("start_new_chain").chaining_strategy = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Self:
        """Runs this operator as a task of its own."""
        self._operator("disable_chaining").chaining_strategy = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Puts the operator, and those behind it that name none, into a slot sharing group."""
        self._operator("slot_sharing_group").slot_sharing_group = group_name(slot_sharing_group)
        return self
