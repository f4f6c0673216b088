"""Any sequence of updates, snapshots, restores and other parallelisms equals a dict, whatever the backend."""

from __future__ import annotations

import os
import secrets
from typing import Any

import pytest

from firesteel.state.backend import KeyedStateParameters, load_state_backend
from firesteel.state.heap import HeapKeyedState, HeapStateBackend
from firesteel.testing.rescaling_conformance import check_rescaling

BACKENDS = [["hashmap"], ["rocksdb"], ["hashmap", "rocksdb"]]
PROGRAMS = {"hashmap": 6, "rocksdb": 1, "hashmap-rocksdb": 1}
"""Those with a disk below take seconds each."""


def first_seed() -> int:
    """As given, or by lot; without ``CI`` each run looks at others."""
    seed = os.environ.get("FIRESTEEL_TEST_SEED")
    return int(seed) if seed else 0 if os.environ.get("CI") else secrets.randbelow(1 << 32)


@pytest.mark.parametrize("names", BACKENDS, ids="-".join)
def test_state_equals_a_dict(names: list[str]) -> None:
    first = first_seed()
    check_rescaling([load_state_backend(name) for name in names], seeds=range(first, first + PROGRAMS["-".join(names)]))


@pytest.mark.long
@pytest.mark.parametrize("names", BACKENDS, ids="-".join)
def test_state_equals_a_dict_in_many_programs(names: list[str]) -> None:
    first = secrets.randbelow(1 << 32)
    check_rescaling([load_state_backend(name) for name in names], seeds=range(first, first + 40), steps=600)


class Forgetful(HeapKeyedState):
    """Takes over the timers of key groups of others, too."""

    def _take_timers(self, queue: Any, chunk: Any) -> None:
        theirs = KeyedStateParameters(key_groups=range(1 << 16))
        own, self._parameters = self._parameters, theirs
        super()._take_timers(queue, chunk)
        self._parameters = own


class ForgetfulBackend(HeapStateBackend):
    def create_keyed_state(self, parameters: KeyedStateParameters) -> HeapKeyedState:
        return Forgetful(parameters)


def test_the_kit_finds_what_is_there_twice() -> None:
    with pytest.raises(AssertionError, match=r"timer|fires"):
        check_rescaling([ForgetfulBackend()])
