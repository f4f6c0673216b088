"""Programs of the streaming suites in batch mode: their own tests, with the results that they have as streams.

The functions are those of the suites. Here a job is run by its bounded stages, in this process.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from firesteel.client.graph_shipment import prepare
from firesteel.client.job_client import failure_as_error
from firesteel.common import Configuration, JobID
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.config import Settings
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.protocol.deployment import TaskFailure
from firesteel.protocol.stages import failure_in
from tests import tpch
from tests.integration.embedded import (
    test_async_and_metrics,
    test_cache_and_watermarks,
    test_columns,
    test_event_time,
    test_formats,
    test_operators,
    test_sources_and_sinks,
    test_state,
    test_windows,
)
from tests.integration.embedded.programs import new_environment
from tests.unit.runtime.bounded_jobs import BoundedJob

SUITES: tuple[ModuleType, ...] = (
    test_operators, test_event_time, test_windows, test_columns, test_state, test_async_and_metrics,
    test_cache_and_watermarks, test_sources_and_sinks, test_formats,
)  # fmt: skip
_UNBOUNDED, _LIVE = "a source is unbounded", "it is about what happens while a stream goes on"
OTHERWISE = {
    "test_operators.test_keyed_reduce_and_aggregations": "rolling results: in batch mode only the last one of each key",
    "test_event_time.test_a_punctuated_watermark_takes_effect_before_the_end": _LIVE,
    "test_event_time.test_processing_time_timers_fire_while_records_come": _UNBOUNDED,
    "test_event_time.test_what_is_idle_holds_back_nobody": _UNBOUNDED,
    "test_event_time.test_a_source_that_is_ahead_of_its_group_is_paused": _UNBOUNDED,
    "test_event_time.test_rest_shows_the_watermarks": _UNBOUNDED,
    "test_columns.test_columns_from_source_to_sink": "it looks at the order of results",
    "test_state.test_an_unknown_state_backend_fails_with_those_that_are_known": "there are no state backends",
    "test_async_and_metrics.test_metrics_of_functions_are_in_flinks_paths": _LIVE,
    "test_sources_and_sinks.test_a_users_source": "its blocking reader wants a thread: here it holds up nobody else",
    "test_sources_and_sinks.test_blocking_functions_have_a_thread_of_their_own": "the same",
    "test_sources_and_sinks.test_a_users_sink": "its parameters are places",
    "test_sources_and_sinks.test_words_of_lines_in_a_column_are_counted_by_text_that_repeats": (
        "rolling results: in batch mode only the last one of each key"
    ),
    "test_cache_and_watermarks.test_windows_fire_by_the_watermarks_of_a_source_function": _UNBOUNDED,
    "test_sources_and_sinks.test_files_become_visible_at_the_end_only": _LIVE,
    "test_sources_and_sinks.test_no_file_stays_after_a_cancel": _LIVE,
    "test_sources_and_sinks.test_no_file_stays_after_a_failure": _UNBOUNDED,
    "test_formats.test_malformed_lines_are_skipped": "it asks the cluster for a counter",
    "test_formats.test_files_that_appear_while_the_job_runs": _UNBOUNDED,
    "test_formats.test_text_from_a_socket": _UNBOUNDED,
    "test_formats.test_a_socket_that_nobody_serves": _UNBOUNDED,
    "test_formats.test_source_functions": _UNBOUNDED,
    "test_formats.test_cancel_of_a_source_function": _UNBOUNDED,
    "test_formats.test_a_source_function_that_fails": _UNBOUNDED,
}
"""Tests that can't be run so, and why."""


class Ended:
    """The client of a job that has ended."""

    def __init__(self, job: BoundedJob) -> None:
        self._results: list[list[Any]] = [job.collected]

    def wait(self) -> JobExecutionResult:
        return JobExecutionResult(JobID("ab" * 16), net_runtime_ms=1)

    def collect(self, operator_id: str) -> Ended:
        return self

    def fetch(self) -> list[Any] | None:
        return self._results.pop() if self._results else None

    def close(self) -> None:
        self._results.clear()


class InThisThread:
    """Runs a job when it is submitted."""

    def default_parallelism(self) -> int:
        return 2

    def submit(self, graph: Any, configuration: Configuration) -> Ended:
        settings = Settings({**configuration.to_dict(), "execution.runtime-mode": "BATCH"})
        job = BoundedJob(*prepare(graph, settings, same_host=True), groups=16)
        failure = None
        try:
            job.run()
        except RuntimeError as error:
            failure = failure_in(str(error))
            if failure is None:
                raise
        if failure is not None:
            raise failure_as_error(TaskFailure.from_plain(failure.failure), job.graph.job_id, job.graph.name)
        if any(report["commit"] and any(report["commit"].values()) for report in job.reports):
            job.commit()
        print(job.printed, end="")
        return Ended(job)

    def cluster_jobs(self, configuration: Configuration) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def in_batch_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamExecutionEnvironment, "_get_executor", lambda env: InThisThread())


@pytest.fixture
def place() -> None:
    """Where a suite would run its programs; it is here."""


@pytest.fixture
def anywhere(place: None) -> None: ...


@pytest.mark.parametrize("name", tpch.QUERIES)
def test_queries_give_what_a_database_gives(name: str, tmp_path: Path) -> None:
    tpch.generate(tmp_path, 300)
    query = tpch.QUERIES[name]
    expected = query.expected(tmp_path)
    assert expected
    assert sorted(map(tuple, query.program(new_environment(2), tmp_path).execute_and_collect())) == expected


def test_what_is_left_out_is_there() -> None:
    assert {name for name in OTHERWISE if not hasattr(_suite(name), name.partition(".")[2])} == set()


def _suite(name: str) -> ModuleType:
    return next(suite for suite in SUITES if suite.__name__.endswith(f".{name.partition('.')[0]}"))


for suite in SUITES:
    for name, function in inspect.getmembers(suite, inspect.isfunction):
        full = f"{suite.__name__.rpartition('.')[2]}.{name}"
        if name.startswith("test_") and function.__module__ == suite.__name__ and full not in OTHERWISE:
            globals()[f"test_{full.removeprefix('test_').replace('.test_', '__')}"] = function
