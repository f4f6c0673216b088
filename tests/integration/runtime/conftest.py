"""Slot processes for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime.slot_process import SlotProcess


@pytest.fixture
def start_slot() -> Iterator[Callable[..., SlotProcess]]:
    """Starts slots that end with the test; their directory has a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="fs") as directory:
        started: list[SlotProcess] = []

        def start(**arguments: Any) -> SlotProcess:
            slot = SlotProcess(Path(directory), **arguments)
            started.append(slot)
            return slot

        yield start
        for slot in started:
            slot.close()


@pytest.fixture
def slot(start_slot: Callable[..., SlotProcess]) -> SlotProcess:
    return start_slot()
