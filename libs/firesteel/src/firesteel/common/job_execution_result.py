"""``JobExecutionResult``: the result of a job that has finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firesteel.common.job_id import JobID
from firesteel.core import html_cards
from firesteel.core.short_repr import short_repr

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """Id, run time and accumulators of a finished job.

    Examples:
        ```python
        from firesteel.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection([1]).print()
        result = env.execute()
        print(result.get_net_runtime() > 0, len(result.get_job_id().to_hex_string()))
        ```

        ```text
        1
        True 32
        ```
    """

    def __init__(self, job_id: JobID, net_runtime_ms: int = 0, accumulators: Mapping[str, Any] | None = None) -> None:
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """Returns the job's id."""
        return self._job_id

    def get_net_runtime(self) -> int:
        """Returns how long the job ran, in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """Returns the value of an accumulator, None if there is no accumulator with this name."""
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Returns all accumulators with their values."""
        return dict(self._accumulators)

    def is_job_execution_result(self) -> bool:
        """Returns True; it exists because PyFlink has it."""
        return True

    def _repr_html_(self) -> str:
        facts = [
            ("id", html_cards.text(str(self._job_id))),
            ("run time", html_cards.text(f"{self._net_runtime_ms / 1000:,.3f} s")),
        ]
        accumulators = [[name, short_repr(value, html_cards.MAX_TEXT)] for name, value in self._accumulators.items()]
        counters = html_cards.table(["accumulator", "value"], accumulators) if accumulators else ""
        rest = html_cards.more(len(accumulators) - html_cards.MAX_ROWS, "accumulators")
        return html_cards.card("Finished job", facts, counters, rest)

    def __repr__(self) -> str:
        return f"JobExecutionResult(job_id={self._job_id}, net_runtime={self._net_runtime_ms} ms)"
