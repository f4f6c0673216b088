"""Waits for a job at a terminal: shows its progress, and asks at Ctrl-C whether to cancel it."""

from __future__ import annotations

from typing import Final

from firesteel.client.console import Console
from firesteel.client.job_client import ClusterJobClient
from firesteel.client.progress_display import TICK_SECONDS, ProgressDisplay
from firesteel.common.completable_future import CompletableFuture
from firesteel.common.job_execution_result import JobExecutionResult
from firesteel.core.clock import Clock
from firesteel.core.errors import JobCancelledError, JobError, RpcError
from firesteel.core.notebook import InterruptedCellError
from firesteel.graph.job_graph import JobGraph

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
        self._client, self._graph, self._console = client, graph, console
        self._progress = ProgressDisplay(client.get_job_details, graph, console, clock) if show_progress else None
        self._cancel_on_exit = cancel_on_exit
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
                    result = self._follow(future)
                except KeyboardInterrupt:
                    self._interrupted()
                else:
                    self._finish()
                    return result
        except JobCancelledError:
            self._finish()
            if not self._cancelling:
                raise
            self._console.note(f"Job {self._graph.job_id} was cancelled.")
            raise InterruptedCellError from None
        except JobError:
            self._finish()
            raise
        except RpcError:
            raise
        except BaseException:
            if self._cancel_on_exit:
                self._cancel(_LAST_CANCEL_SECONDS)
            raise
        finally:
            if self._progress is not None:
                self._progress.close()
            self._console.clear()

    def _finish(self) -> None:
        if self._progress is not None:
            self._progress.finish()

    def _follow(self, future: CompletableFuture[JobExecutionResult]) -> JobExecutionResult:
        while True:
            try:
                return future.result(TICK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            if self._progress is not None:
                self._progress.tick()

    def _interrupted(self) -> None:
        """Decide what Ctrl-C means; returns if the wait goes on."""
        job = f"job {self._graph.name!r} ({self._graph.job_id})"
        if self._cancelling:
            self._leave(f"Left at once: {job} is being cancelled.")
        if self._console.can_ask and not self._cancel_on_exit:
            try:
                answer = self._console.ask(f"Cancel {job}? (Ctrl-C again leaves it running)")
            except KeyboardInterrupt:
                self._console.note("")
                self._leave(f"Left: {job} runs on; {self._console.how_to_cancel(self._graph.job_id)} cancels it.")
            if answer is False:
                return
        self._cancelling = True
        self._console.note(f"Cancelling {job} ...")
        try:
            self._cancel(_CANCEL_SECONDS)
        except KeyboardInterrupt:
            how = self._console.how_to_cancel(self._graph.job_id)
            self._leave(f"Left at once: {job} may run on; {how} cancels it.")

    def _leave(self, text: str) -> None:
        self._console.note(text)
        raise _LeftError

    def _cancel(self, seconds: float) -> None:
        try:
            self._client.cancel().result(seconds)
        except (RpcError, JobError, TimeoutError) as error:
            self._console.note(f"firesteel: the job could not be cancelled: {error or 'no answer in time'}")


class _LeftError(InterruptedCellError):
    """Ends the attached client once the person has left by Ctrl-C."""
