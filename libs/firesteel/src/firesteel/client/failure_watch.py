"""Tells the person at a program why its job is restarted, which nothing else would: the job goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from firesteel.client.rest_client import RestClient
from firesteel.core.errors import JobError, RpcError

INTERVAL_SECONDS: Final = 2.0
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")


class FailureWatch:
    """Which failures of a job the person knows.

    Args:
        job: its name and id, for people.
        tell: shows a text.
    """

    def __init__(self, job: str, tell: Callable[[str], None]) -> None:
        self._job, self._tell = job, tell
        self._known: set[tuple[int, str]] = set()
        self._last_stack = ""

    def look(self, exceptions: dict[str, Any]) -> None:
        """Tell of new failures that a restart answers; one that ends the job is raised by whoever waits for it.

        Args:
            exceptions: the answer of ``GET /jobs/:jobid/exceptions``.
        """
        for entry in reversed(exceptions["exceptionHistory"]["entries"]):
            known = (entry["timestamp"], entry["exceptionName"])
            answer = entry.get("firesteel-answer")
            if not answer or known in self._known:
                continue
            self._known.add(known)
            stack = entry["stacktrace"].rstrip()
            shown = "" if stack == self._last_stack else f"\n{stack}"
            self._last_stack = stack
            self._tell(f"{self._job} failed with {entry['exceptionName']}; {answer}{shown}")


async def watch_failures(rest: RestClient, job_id: str, watch: FailureWatch) -> None:
    """Look every ``INTERVAL_SECONDS`` until the job has ended."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        try:
            watch.look(await rest.get(f"/jobs/{job_id}/exceptions"))
            status = await rest.get(f"/jobs/{job_id}/status")
        except JobError:  # nobody knows it any more
            return
        except RpcError:  # nobody leads for now
            continue
        if status["status"] in _ENDED:
            return
