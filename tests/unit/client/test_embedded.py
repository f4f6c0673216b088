"""The executor of embedded mode, as far as it goes without a cluster."""

from __future__ import annotations

import sys

import pytest

from firesteel.client import embedded
from firesteel.common.configuration import Configuration
from firesteel.core.errors import FleetError
from firesteel.core.machine import usable_cores
from firesteel.datastream import StreamExecutionEnvironment


def test_on_windows_graphs_are_built_and_slots_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "before_threads_end", lambda action: None)
    monkeypatch.setattr(sys, "platform", "win32")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(str).print()
    assert "Collection Source" in env.get_execution_plan()
    with pytest.raises(FleetError, match="do not run on Windows"):
        env.execute()


def test_the_default_parallelism_is_the_cores_unless_somebody_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = embedded.EmbeddedExecutor(Configuration())
    assert executor.default_parallelism() == usable_cores()
    monkeypatch.setenv("FIRESTEEL_OPTION_PARALLELISM_DEFAULT", "7")
    assert executor.default_parallelism() == 7
