"""What ``execute()`` gives for a job that is not waited for."""

from __future__ import annotations

from typing import Any, NoReturn

from typing_extensions import override

from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.core import html_cards
from firesteel.core.errors import ProgramError


class DetachedJobExecutionResult(JobExecutionResult):
    """The job was submitted; nothing is known of its end. All but its id raises ``ProgramError``."""

    def get_net_runtime(self) -> NoReturn:
        _refuse()

    def get_accumulator_result(self, accumulator_name: str) -> NoReturn:
        _refuse()

    def get_all_accumulator_results(self) -> dict[str, Any]:
        _refuse()

    def is_job_execution_result(self) -> bool:
        """Returns false: the job has only been submitted."""
        return False

    @override
    def _repr_html_(self) -> str:
        return html_cards.card("Submitted job", [("id", html_cards.text(str(self.get_job_id())))])

    def __repr__(self) -> str:
        return f"DetachedJobExecutionResult(job_id={self.get_job_id()})"


def _refuse() -> NoReturn:
    raise ProgramError(
        "the job was submitted detached (execution.attached is false), so its result is not known: run it attached"
    )
