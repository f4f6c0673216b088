"""What takes over a second says so on a terminal: one live line with the time that has gone by."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from firesteel.client.connections import ClusterConnection
from firesteel.client.console import Console
from firesteel.client.progress import clock_text
from firesteel.core.clock import Clock, SystemClock

T = TypeVar("T")
SILENT_SECONDS: Final = 1.0
_STEP_SECONDS: Final = 0.2


def wait_for(
    console: Console,
    connection: ClusterConnection,
    what: str | Callable[[], str],
    coroutine: Coroutine[Any, Any, T],
    clock: Clock | None = None,
) -> T:
    """The result of a coroutine on the connection's loop; while it is waited for, a live line says for what."""
    future = connection.loop.start(coroutine)
    return waited(console, what, future.result, clock, future.cancel)


def waited(
    console: Console,
    what: str | Callable[[], str],
    result: Callable[[float | None], T],
    clock: Clock | None = None,
    give_up: Callable[[], object] = lambda: None,
) -> T:
    """A result; while it is waited for, a live line says for what.

    Args:
        console: shows the line, if it is a terminal.
        what: is waited for; a function says it anew each time, with a bar perhaps.
        result: waits that many seconds for it, and raises ``TimeoutError`` if it is not there then; None = for ever.
        clock: measures the time.
        give_up: called when the wait is broken off.
    """
    clock = clock or SystemClock()
    begin = clock.monotonic()
    try:
        if not console.has_live_line:
            return result(None)
        while True:
            elapsed = clock.monotonic() - begin
            try:
                return result(SILENT_SECONDS if elapsed < SILENT_SECONDS else _STEP_SECONDS)
            except (TimeoutError, concurrent.futures.TimeoutError):
                if _is_done(result):
                    raise
                text = what if isinstance(what, str) else what()
                console.live(f"{text} ... {clock_text(clock.monotonic() - begin)}")
    except BaseException:
        give_up()
        raise
    finally:
        console.clear()


def _is_done(result: Callable[[float | None], object]) -> bool:
    """Whether the ``TimeoutError`` is the work's own."""
    future = getattr(result, "__self__", None)
    return isinstance(future, concurrent.futures.Future) and future.done()
