"""Shows the progress of one job while somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from firesteel.client.console import Console
from firesteel.client.progress import Occasion, Progress, clock_text
from firesteel.common.completable_future import CompletableFuture
from firesteel.core.clock import Clock
from firesteel.core.errors import JobError, RpcError
from firesteel.graph.job_graph import JobGraph

TICK_SECONDS: Final = 0.5
_LAST_LOOK_SECONDS: Final = 2.0


class ProgressDisplay:
    """A live line where the console has one, else plain lines when something has changed.

    Args:
        ask: asks for the answer of ``GET /jobs/:jobid``.
        graph: of the job.
        console: where to show it.
        clock: measures the time that it shows.
    """

    def __init__(
        self, ask: Callable[[], CompletableFuture[dict[str, Any]]], graph: JobGraph, console: Console, clock: Clock
    ) -> None:
        self._ask, self._graph, self._console, self._clock = ask, graph, console, clock
        self._started = clock.monotonic()
        self._occasion = Occasion()
        self._details: CompletableFuture[dict[str, Any]] | None = None
        self._last: Progress | None = None
        self._was_shown = False
        self._next = float("-inf")

    def tick(self) -> None:
        """Show what is known, and ask for more; called about every ``TICK_SECONDS``, or more often."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + TICK_SECONDS / 2
        if self._details is None:
            self._details = self._ask()
        elif self._details.done():
            answered, self._details = self._details, None
            self._read(answered, None)
        elapsed, name = now - self._started, self._graph.name
        if elapsed < self._console.quiet_seconds:
            return
        text = self._last.line(name, elapsed) if self._last else f"{name}: no answer yet  {clock_text(elapsed)}"
        if self._console.has_live_line:
            self._was_shown = True
            self._console.live(text)
        elif self._last is not None and self._occasion.is_due(self._last, now):
            self._console.note(text)

    def finish(self) -> None:
        """Show the last figures of a job that has ended, where the line stays and has been shown."""
        if self._was_shown and self._console.keeps_last_line:
            self._read(self._ask(), _LAST_LOOK_SECONDS)
            if self._last is not None:
                self._console.live(self._last.line(self._graph.name, self._clock.monotonic() - self._started))

    def interrupted(self) -> None:
        """Say that the job was cancelled because the program does not read its results any more."""
        self._console.note(f"Job {self._graph.name!r} ({self._graph.job_id}) was cancelled.")

    def close(self) -> None:
        """Ask for nothing more."""
        if self._details is not None:
            self._details.cancel()

    def _read(self, details: CompletableFuture[dict[str, Any]], timeout: float | None) -> None:
        self._last = None
        # Whoever waits for the job's result hears what is wrong.
        with suppress(RpcError, JobError, TimeoutError, KeyError, TypeError, ValueError):
            self._last = Progress.of(details.result(timeout), self._graph)
