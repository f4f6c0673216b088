"""Waits for a job at a terminal: shows its progress, and asks at Ctrl-C whether to cancel it."""

from __future__ import annotations

from typing import Any, Final

from firesteel.client.console import Console
from firesteel.client.job_client import ClusterJobClient
from firesteel.client.progress import Occasion, Progress, clock_text
from firesteel.common.completable_future import CompletableFuture
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.core.clock import Clock
from firesteel.core.errors import JobCancelledError, JobError, RpcError
from firesteel.graph.job_graph import JobGraph

_TICK_SECONDS: Final = 0.5
_CANCEL_SECONDS: Final = 30.0
_LAST_CANCEL_SECONDS: Final = 5.0


class AttachedWait:
    """One wait for one job. Ctrl-C asks whether to cancel, or cancels where nobody can answer; a second one leaves.

    Args:
        client: of the job.
        graph: that was submitted.
        console: where to talk.
        clock: measures the time that the progress shows.
        show_progress: on a live line, or on plain lines where there is no terminal.
        cancel_on_exit: cancel the job when the wait is given up for any reason.
    """

    def __init__(
        self,
        client: ClusterJobClient,
        graph: JobGraph,
        console: Console,
        clock: Clock,
        *,
        show_progress: bool,
        cancel_on_exit: bool = False,
    ) -> None:
        self._client, self._graph, self._console, self._clock = client, graph, console, clock
        self._show, self._cancel_on_exit = show_progress, cancel_on_exit
        self._started = clock.monotonic()
        self._occasion = Occasion()
        self._details: CompletableFuture[dict[str, Any]] | None = None
        self._last: Progress | None = None
        self._cancelling = False

    def run(self) -> JobExecutionResult:
        """Wait for the end.

        Raises:
            JobError: the job did not finish.
            KeyboardInterrupt: Ctrl-C; the job was cancelled or, as was said, runs on.
        """
        future = self._client.get_job_execution_result()
        try:
            while True:
                try:
                    return self._follow(future)
                except KeyboardInterrupt:
                    self._interrupted()
        except JobCancelledError:
            if not self._cancelling:
                raise
            self._console.note(f"Job {self._graph.job_id} was cancelled.")
            raise KeyboardInterrupt from None
        except (JobError, RpcError):
            raise
        except BaseException:
            if self._cancel_on_exit:
                self._cancel(_LAST_CANCEL_SECONDS)
            raise
        finally:
            self._console.clear()
            if self._details is not None:
                self._details.cancel()

    def _follow(self, future: CompletableFuture[JobExecutionResult]) -> JobExecutionResult:
        while True:
            try:
                return future.result(_TICK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            if self._show:
                self._show_progress()

    def _interrupted(self) -> None:
        """Decide what Ctrl-C means; returns if the wait goes on."""
        job = f"job {self._graph.name!r} ({self._graph.job_id})"
        if self._cancelling:
            self._leave(f"Left at once: {job} is being cancelled; `firesteel list -a` tells how it ends.")
        if self._console.can_ask and not self._cancel_on_exit:
            try:
                answer = self._console.ask(f"Cancel {job}? (Ctrl-C again leaves it running)")
            except KeyboardInterrupt:
                self._console.note("")
                self._leave(f"Left: {job} runs on; `firesteel cancel {self._graph.job_id}` cancels it.")
            if answer is False:
                return
        self._cancelling = True
        self._console.note(f"Cancelling {job} ...")
        try:
            self._cancel(_CANCEL_SECONDS)
        except KeyboardInterrupt:
            self._leave(f"Left at once: {job} may run on; `firesteel cancel {self._graph.job_id}` cancels it.")

    def _leave(self, text: str) -> None:
        self._console.note(text)
        raise _LeftError

    def _cancel(self, seconds: float) -> None:
        try:
            self._client.cancel().result(seconds)
        except (RpcError, JobError, TimeoutError) as error:
            self._console.note(f"firesteel: the job could not be cancelled: {error or 'no answer in time'}")

    def _show_progress(self) -> None:
        if self._details is None:
            self._details = self._client.get_job_details()
        elif self._details.done():
            asked, self._details = self._details, None
            try:
                self._last = Progress.of(asked.result(), self._graph)
            except (RpcError, JobError, KeyError, TypeError, ValueError):  # the result will say what is wrong
                self._last = None
        now = self._clock.monotonic()
        elapsed, name = now - self._started, self._graph.name
        text = self._last.line(name, elapsed) if self._last else f"{name}: no answer yet  {clock_text(elapsed)}"
        if self._console.has_live_line:
            self._console.live(text)
        elif self._last is not None and self._occasion.is_due(self._last, now):
            self._console.note(text)


class _LeftError(KeyboardInterrupt):
    """Ends the attached client once the person has left by Ctrl-C."""
