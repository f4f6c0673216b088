"""Maps the five getters of a store of keyed state to one method."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from firesteel.functions.functions import KeyedStateStore
from firesteel.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)


class StateGetters(KeyedStateStore):
    """A store whose states are all created by ``_state``."""

    @abstractmethod
    def _state(self, descriptor: Any, descriptor_class: type[StateDescriptor], method: str) -> Any:
        """The state of a descriptor.

        Args:
            descriptor: as the program gave it.
            descriptor_class: class that it must have.
            method: what the program called.
        """

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        """The value state of this name."""
        return self._state(state_descriptor, ValueStateDescriptor, "get_state")

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        """The list state of this name."""
        return self._state(state_descriptor, ListStateDescriptor, "get_list_state")

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        """The map state of this name."""
        return self._state(state_descriptor, MapStateDescriptor, "get_map_state")

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        """The reducing state of this name."""
        return self._state(state_descriptor, ReducingStateDescriptor, "get_reducing_state")

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        """The aggregating state of this name."""
        return self._state(state_descriptor, AggregatingStateDescriptor, "get_aggregating_state")
