"""Jobs in the cells of a notebook: their progress, their slots, and what is shown of them."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from firesteel.client import embedded
from firesteel.client.attached import AttachedWait
from firesteel.client.cell_console import CellConsole
from firesteel.client.cell_slots import check_slots
from firesteel.client.embedded import EmbeddedJobClient
from firesteel.client.job_client import ClusterJobClient
from firesteel.client.loop_thread import LoopThread
from firesteel.client.progress_display import ProgressDisplay
from firesteel.client.rest_client import RestClient
from firesteel.client.results import RestResultStream
from firesteel.client.source_lines import with_source_lines
from firesteel.common import CompletableFuture, JobExecutionResult, JobID, JobStatus
from firesteel.common.submitted_jobs import LOCAL, submitted_jobs
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import JobCancelledError, NoResourceAvailableError, PeerUnreachableError
from firesteel.graph.job_graph import JobGraph
from tests.unit.client.test_attached import CTRL_C, Client
from tests.unit.client.test_progress import graph, vertex
from tests.unit.core.notebook_kernel import Shell, in_notebook

URL = "http://127.0.0.1:1/#/jobs/x"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(submitted_jobs, "_jobs", [])
    return in_notebook(monkeypatch, "first")


def waiting(client: Client) -> AttachedWait:
    return AttachedWait(cast(ClusterJobClient, client), graph(), CellConsole(URL), client.clock, show_progress=True)


def test_progress_is_one_line_in_one_place_and_stays(shell: Shell) -> None:
    client = Client([TimeoutError()] * 6 + [JobExecutionResult(JobID("0" * 32), 7)])
    client.details = {"state": "RUNNING", "vertices": [vertex("s", 1_000, 5, RUNNING=2)]}
    waiting(client).run()
    lines, pages, places, updates = zip(*shell.shown, strict=True)
    assert lines[-1] == "job: RUNNING  records in 1,000 out 0  slots 2/3  0:00:03"
    assert all(f'href="{URL}"' in page for page in pages)
    assert len(set(places)) == 1
    assert updates == (False, *[True] * (len(lines) - 1))
    assert all("0:00:00" not in line for line in lines), "a job of a moment shows nothing"


def test_a_job_of_a_moment_shows_no_progress(shell: Shell) -> None:
    waiting(Client([TimeoutError(), JobExecutionResult(JobID("0" * 32), 7)])).run()
    assert shell.shown == []


def test_a_name_with_html_is_text_in_the_line(shell: Shell) -> None:
    CellConsole("javascript:x").live("<script>&")
    (plain, page, _, _) = shell.shown[0]
    assert plain == "<script>&"
    assert "&lt;script&gt;&amp;" in page
    assert "href" not in page


def test_the_stop_button_cancels_and_says_so(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    cancelled = JobCancelledError("it was cancelled", "0" * 32)
    client = Client([TimeoutError(), CTRL_C, TimeoutError(), cancelled])
    with pytest.raises(KeyboardInterrupt) as raised:
        waiting(client).run()
    assert raised.type.__name__ == "KeyboardInterrupt"
    assert client.cancels == 1
    assert f"Cancelling job 'job' ({'0' * 32}) ...\nJob {'0' * 32} was cancelled.\n" in capsys.readouterr().out


def test_a_second_stop_leaves_at_once(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    client = Client([CTRL_C, CTRL_C])
    with pytest.raises(KeyboardInterrupt):
        waiting(client).run()
    assert "is being cancelled" in capsys.readouterr().out
    client = Client([CTRL_C], cancel=CTRL_C)
    with pytest.raises(KeyboardInterrupt):
        waiting(client).run()
    assert "may run on; `env.cancel_jobs()` cancels it." in capsys.readouterr().out


def test_an_interrupted_reader_is_told_that_its_job_was_cancelled(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = LoopThread("test")
    cancelled = []

    class Rest:
        async def collect(self, *arguments: Any) -> None:
            raise TimeoutError

        async def cancel(self, job_id: str) -> bool:
            cancelled.append(job_id)
            return True

    client = Client([])
    display = ProgressDisplay(client.get_job_details, graph(), CellConsole(), client.clock)
    try:
        stream = RestResultStream("j", "o", cast(RestClient, Rest()), loop, cast(Any, None), display)
        interrupted: Any = SimpleNamespace(
            result=lambda timeout: (_ for _ in ()).throw(KeyboardInterrupt), cancel=lambda: True, done=lambda: False
        )
        stream._pull = interrupted
        with pytest.raises(KeyboardInterrupt):
            stream.fetch()
    finally:
        loop.close()
    assert cancelled == ["j"]
    assert f"Job 'job' ({'0' * 32}) was cancelled." in capsys.readouterr().out


# --- slots ---------------------------------------------------------------------------------------------------------


def running_job(*, bounded: bool, status: JobStatus = JobStatus.RUNNING, job_graph: JobGraph | None = None) -> Any:
    """A job of the cell that runs now, as far as its slots matter; it needs 3."""
    whole = job_graph or graph()
    source = whole.vertices[0].source
    assert source is not None
    first = replace(whole.vertices[0], source=replace(source, bounded=bounded))
    client = SimpleNamespace(
        graph=replace(whole, name="earlier", vertices=(first, *whole.vertices[1:])),
        get_job_status=lambda: CompletableFuture.completed(status),
    )
    submitted_jobs.add(cast(Any, client), LOCAL)
    return client


def test_a_cell_that_is_run_again_is_told_who_has_its_slots(shell: Shell) -> None:
    running_job(bounded=False)
    shell.next_cell()
    with pytest.raises(NoResourceAvailableError) as refused:
        check_slots(graph(), LOCAL, 4)
    text = str(refused.value)
    assert f"job 'earlier' ({'0' * 32}) of an earlier run of this cell, In[1], holds 3 of 4 slots" in text
    assert "job 'job' needs 3" in text
    assert "`env.cancel_jobs()`" in text
    assert "taskmanager.numberOfTaskSlots = 6" in text
    shell.place = "second"
    with pytest.raises(NoResourceAvailableError, match=r"of In\[1\] holds 3 of 4 slots"):
        check_slots(graph(), LOCAL, 4)


def test_there_may_be_slots_enough(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    check_slots(graph(), LOCAL, 3)
    running_job(bounded=False)
    check_slots(graph(), LOCAL, 6)
    check_slots(replace(graph(), config={"execution.runtime-mode": "BATCH"}), LOCAL, 3)
    check_slots(graph(), ("remote", "http://h:1"), 3)
    assert capsys.readouterr().out == ""


def test_a_job_that_will_end_is_waited_for_and_named(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    running_job(bounded=True)
    running_job(bounded=False, status=JobStatus.CANCELLING)
    running_job(bounded=False, status=JobStatus.FINISHED)
    check_slots(graph(), LOCAL, 4)
    text = capsys.readouterr().out
    assert text.count("holds 3 of 4 slots") == 2
    assert "waits until they are free. `env.cancel_jobs()`" in text


def test_the_slots_of_a_shared_cluster_are_no_reason_to_refuse(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ("remote", "http://h:1")
    submitted_jobs.add(running_job(bounded=False), cluster)
    check_slots(graph(), cluster, 4, free_slots=3)
    assert capsys.readouterr().out == ""
    check_slots(graph(), cluster, 4, free_slots=1)
    assert "holds 3 of 4 slots" in capsys.readouterr().out


def test_a_cluster_gets_the_slots_that_a_later_program_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    cluster = SimpleNamespace(pid=os.getpid(), ensure_slots=counts.append)
    shared = embedded._Shared()
    monkeypatch.setattr(shared, "_cluster", cluster)
    shared.get(Settings({}), 3)
    shared.get(Settings({options.TASKMANAGER_SLOTS.key: "8"}), 3)
    assert counts == [3, 8]


# --- what is shown -------------------------------------------------------------------------------------------------


class Rest:
    """Answers of a job; an exception among them is raised."""

    base_url = "http://127.0.0.1:1"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def dashboard_url(self, job_id: str) -> str:
        return f"{self.base_url}/#/jobs/{job_id}"

    async def get(self, path: str) -> Any:
        kind = "metrics" if "metrics" in path else "exceptions" if "exceptions" in path else "details"
        if isinstance(self.answers[kind], Exception):
            raise self.answers[kind]
        return self.answers[kind]


def card(rest: Rest) -> str:
    loop = LoopThread("test")
    try:
        return ClusterJobClient(replace(graph(), name="<b>"), cast(RestClient, rest), loop)._repr_html_()
    finally:
        loop.close()


def test_a_job_shows_state_rates_failure_and_its_page() -> None:
    details = {
        "state": "RUNNING", "duration": 61_000, "firesteel-waiting-for": "", "firesteel-restarts": 2,
        "vertices": [vertex("s", 1_200, 0, RUNNING=2), vertex("e", 7, 0, RUNNING=1)],
    }  # fmt: skip
    failures = {"exceptionHistory": {"entries": [{"stacktrace": "Traceback\n  x\nValueError: <script>\n"}]}}
    text = card(Rest(details=details, exceptions=failures, metrics=[{"id": "numRecordsInPerSecond", "sum": 40.2}]))
    assert "<b>Job &lt;b&gt;</b>" in text
    for fact in (
        "RUNNING for 0:01:01",
        "1,200 (40 a second)",
        "7 (40 a second)",
        "3 of 3",
        "ValueError: &lt;script&gt;",
    ):
        assert fact in text, fact
    assert f'href="http://127.0.0.1:1/#/jobs/{"0" * 32}"' in text
    assert "Traceback" not in text


def test_a_job_of_a_cluster_that_does_not_answer_is_shown_all_the_same() -> None:
    away = PeerUnreachableError("it is <away>")
    text = card(Rest(details=away, exceptions=away))
    assert "not known: it is &lt;away&gt;" in text
    assert repr(ClusterJobClient(graph(), cast(Any, None), cast(Any, None))) == f"<job 'job' ({'0' * 32})>"


def test_outside_of_notebooks_nothing_is_shown_while_a_job_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done = JobExecutionResult(JobID("0" * 32), 7)
    client = EmbeddedJobClient(graph(), cast(Any, None), cast(Any, None))
    monkeypatch.setattr(client, "get_job_execution_result", lambda: CompletableFuture.completed(done))
    assert client.wait() is done


def test_a_function_of_a_cell_is_named_by_its_cell(shell: Shell) -> None:
    of_cell = '  File "/tmp/ipykernel_7/1.py", line 2, in share\n    return 12 // i\n'
    of_module = '  File "/x.py", line 1, in f\n'
    named = "  Cell In[1], line 2, in share\n    return 12 // i\n"
    assert with_source_lines(of_cell + of_module) == named + of_module
