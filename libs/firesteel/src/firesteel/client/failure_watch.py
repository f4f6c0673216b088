"""Shows the user of an attached program why its job restarts: the job goes on, so no exception would say it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from firesteel.client.rest_client import RestClient
from firesteel.core.errors import JobError, RpcError

INTERVAL_SECONDS: Final = 2.0
_ENDED: Final = ("FINISHED", "CANCELED", "FAILED")


class FailureWatch:
    """Shows each failure of a job once.

    Args:
        job: its name and id, for people.
        tell: shows a text.
    """

    def __init__(self, job: str, tell: Callable[[str], None]) -> None:
        self._job, self._tell = job, tell
        self._shown: set[tuple[int, str]] = set()
        self._last_stack = ""

    def look(self, exceptions: dict[str, Any]) -> None:
        """Show new failures after which the job restarts; one that ends the job is raised where its end is awaited.

        Args:
            exceptions: the answer of ``GET /jobs/:jobid/exceptions``.
        """
        for entry in reversed(exceptions["exceptionHistory"]["entries"]):
            failure = (entry["timestamp"], entry["exceptionName"])
            answer = entry.get("firesteel-answer")
            if not answer or failure in self._shown:
                continue
            self._shown.add(failure)
            stack = entry["stacktrace"].rstrip()
            trace = "" if stack == self._last_stack else f"\n{stack}"
            self._last_stack = stack
            self._tell(f"{self._job} failed with {entry['exceptionName']}; {answer}{trace}")


async def watch_failures(rest: RestClient, job_id: str, watch: FailureWatch) -> None:
    """Ask for failures every ``INTERVAL_SECONDS`` until the job has ended."""
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        try:
            watch.look(await rest.get(f"/jobs/{job_id}/exceptions"))
            status = await rest.get(f"/jobs/{job_id}/status")
        except JobError:  # the cluster has forgotten the job
            return
        except RpcError:  # no Dispatcher leads for now: ask again
            continue
        if status["status"] in _ENDED:
            return
