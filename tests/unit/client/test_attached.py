"""What Ctrl-C means while a job is waited for, and what is shown meanwhile."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, cast

import pytest

from firesteel.client.attached import AttachedWait
from firesteel.client.console import Console
from firesteel.client.job_client import ClusterJobClient
from firesteel.common.completable_future import CompletableFuture
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.common.job_id import JobID
from firesteel.core.errors import JobCancelledError, PeerUnreachableError
from firesteel.testing.clock import ManualClock
from tests.unit.client.test_progress import graph, vertex

DONE = JobExecutionResult(JobID("0" * 32), 7)
CTRL_C = KeyboardInterrupt()


class Result:
    """A future that answers by script; ``TimeoutError`` = not yet, and a tick of the clock."""

    def __init__(self, script: Sequence[Any], clock: ManualClock) -> None:
        self._script, self._clock, self._done = list(script), clock, False

    def result(self, timeout: float | None = None) -> Any:
        answer = self._script.pop(0)
        self._done = not isinstance(answer, TimeoutError | KeyboardInterrupt)
        self._clock.advance(timeout or 0.0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def done(self) -> bool:
        return self._done


class Client:
    """A job whose result comes by script."""

    def __init__(self, script: Sequence[Any], cancel: BaseException | None = None) -> None:
        self.clock = ManualClock()
        self.script, self.cancels, self._cancel = script, 0, cancel
        self.details: Any = {"state": "RUNNING", "vertices": [vertex("s", 5, 5, RUNNING=2)]}

    def get_job_execution_result(self) -> Result:
        return Result(self.script, self.clock)

    def cancel(self) -> Result:
        self.cancels += 1
        return Result([self._cancel], self.clock)

    def get_job_details(self) -> CompletableFuture[Any]:
        future: CompletableFuture[Any] = CompletableFuture()
        if isinstance(self.details, Exception):
            future.set_exception(self.details)
        else:
            future.set_result(self.details)
        return future


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Answers(Terminal):
    """Standard input; an exception among the answers is raised."""

    def __init__(self, *answers: str | BaseException) -> None:
        super().__init__()
        self._answers = list(answers)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def waiting(client: Client, console: Console, **more: Any) -> AttachedWait:
    options = {"show_progress": True, **more}
    return AttachedWait(cast(ClusterJobClient, client), graph(), console, client.clock, **options)


def on_terminal(*answers: str | BaseException) -> tuple[Console, Terminal]:
    shown = Terminal()
    return Console(io.StringIO(), shown, Answers(*answers)), shown


def without_terminal() -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(io.StringIO(), shown, io.StringIO()), shown


CANCELLED = JobCancelledError("it was cancelled", "0" * 32)


def test_a_live_line_is_written_over_and_taken_away() -> None:
    console, shown = on_terminal()
    assert waiting(Client([TimeoutError()] * 3 + [DONE]), console).run() is DONE
    text = shown.getvalue()
    assert text.count("\n") == 0
    assert "\r\x1b[2Kjob: no answer yet  0:00:00" in text
    assert "job: RUNNING  records in 5 out 0  slots 2/3  0:00:01" in text
    assert text.endswith("\r\x1b[2K")


def test_without_a_terminal_lines_are_few_and_plain() -> None:
    console, shown = without_terminal()
    assert waiting(Client([TimeoutError()] * 50 + [DONE]), console).run() is DONE
    assert [line.partition("  ")[0] for line in shown.getvalue().splitlines()] == ["job: RUNNING"]
    assert "\x1b" not in shown.getvalue()


def test_nothing_is_shown_to_a_program_that_was_not_started_by_the_command() -> None:
    console, shown = on_terminal()
    assert waiting(Client([TimeoutError()] * 3 + [DONE]), console, show_progress=False).run() is DONE
    assert shown.getvalue() == ""


def test_a_cluster_that_does_not_answer_for_a_while_ends_no_wait() -> None:
    console, shown = on_terminal()
    client = Client([TimeoutError()] * 4 + [DONE])
    client.details = PeerUnreachableError("gone")
    assert waiting(client, console).run() is DONE
    assert "no answer yet" in shown.getvalue()


def test_no_goes_on_waiting() -> None:
    console, shown = on_terminal("n\n", "\n")
    client = Client([CTRL_C, CTRL_C, DONE])
    assert waiting(client, console).run() is DONE
    assert client.cancels == 0
    assert shown.getvalue().count("Cancel job 'job' (00000000000000000000000000000000)?") == 2


def test_yes_cancels_and_waits_for_the_end() -> None:
    console, shown = on_terminal("y\n")
    client = Client([CTRL_C, TimeoutError(), CANCELLED])
    with pytest.raises(KeyboardInterrupt):
        waiting(client, console).run()
    assert client.cancels == 1
    assert shown.getvalue().endswith("was cancelled.\n")


def test_a_job_that_finishes_although_it_should_be_cancelled_has_its_result() -> None:
    console, _ = on_terminal("yes\n")
    assert waiting(Client([CTRL_C, DONE]), console).run() is DONE


def test_ctrl_c_instead_of_an_answer_leaves_the_job_running() -> None:
    console, shown = on_terminal(KeyboardInterrupt())
    client = Client([CTRL_C])
    with pytest.raises(KeyboardInterrupt):
        waiting(client, console).run()
    assert client.cancels == 0
    assert "runs on; `firesteel cancel 00000000000000000000000000000000` cancels it" in shown.getvalue()


def test_without_a_terminal_ctrl_c_cancels_at_once_and_a_second_one_leaves() -> None:
    console, shown = without_terminal()
    client = Client([CTRL_C, CTRL_C])
    with pytest.raises(KeyboardInterrupt):
        waiting(client, console).run()
    assert client.cancels == 1
    assert "Left at once" in shown.getvalue()
    assert "is being cancelled" in shown.getvalue()


def test_ctrl_c_while_the_cancel_is_on_its_way_leaves_and_says_what_may_be() -> None:
    console, shown = without_terminal()
    client = Client([CTRL_C], cancel=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        waiting(client, console).run()
    assert "may run on" in shown.getvalue()


def test_a_cancel_that_fails_is_said_and_the_wait_goes_on() -> None:
    console, shown = without_terminal()
    client = Client([CTRL_C, DONE], cancel=PeerUnreachableError("nobody there"))
    assert waiting(client, console).run() is DONE
    assert "could not be cancelled: nobody there" in shown.getvalue()


def test_a_job_that_somebody_else_cancelled_is_an_error() -> None:
    console, _ = on_terminal()
    with pytest.raises(JobCancelledError):
        waiting(Client([CANCELLED]), console).run()


def test_a_job_that_ends_with_its_client_is_cancelled_without_a_question() -> None:
    console, shown = on_terminal()
    client = Client([CTRL_C, CANCELLED])
    with pytest.raises(KeyboardInterrupt):
        waiting(client, console, cancel_on_exit=True).run()
    assert client.cancels >= 1
    assert "?" not in shown.getvalue()
    client = Client([SystemExit(143)])
    with pytest.raises(SystemExit):
        waiting(client, console, cancel_on_exit=True).run()
    assert client.cancels == 1
