"""The loop of a reporter that sends, beside the work of a service."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from firesteel.core.call_pool import CallPool, close_in_time
from firesteel.metrics.reporter import Measured, MetricReporter

logger = logging.getLogger(__name__)
CLOSE_SECONDS: Final = 2.0


class Pushing:
    """Has a reporter report in intervals, on a thread of its own; its 1st, 10th, 100th failure in a row is logged.

    Args:
        name: of the reporter.
        make: makes the reporter, on that thread.
        measure: returns all metrics.
        filtered: returns the metrics that the reporter gets.
        interval: seconds between two reports.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], MetricReporter],
        measure: Callable[[], Awaitable[list[Measured]]],
        filtered: Callable[[Iterable[Measured]], list[Measured]],
        interval: float,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._name, self._make, self._measure, self._filtered = name, make, measure, filtered
        self._interval, self._sleep = interval, sleep
        self._thread = CallPool(f"firesteel-reporter-{name}", threads=1, deadline=None)
        self._reporter: MetricReporter | None = None
        self._failed = 0

    async def run(self) -> None:
        """Report until the task is cancelled; returns at once if the reporter can't be made."""
        try:
            try:
                self._reporter = await self._apart(self._make)
            except Exception as error:  # the factory is the operator's code, and raises what it likes
                logger.error("the metric reporter %s is off: %s: %s", self._name, type(error).__name__, error)
                return
            while True:
                await self._sleep(self._interval)
                await self._report(self._reporter)
        finally:
            await self._close()

    async def _report(self, reporter: MetricReporter) -> None:
        try:
            await self._apart(functools.partial(reporter.report, self._filtered(await self._measure())))
            self._failed = 0
        except Exception as error:  # as above
            self._failed += 1
            if str(self._failed).strip("0") == "1":
                logger.warning(
                    "the metric reporter %s has failed (%d times in a row by now): %s: %s",
                    self._name, self._failed, type(error).__name__, error,
                )  # fmt: skip

    async def _close(self) -> None:
        if self._reporter is not None:
            try:
                await close_in_time(
                    self._reporter.close, f"the metric reporter {self._name}", self._thread, CLOSE_SECONDS
                )
            except Exception as error:  # as above
                logger.warning("the metric reporter %s: %s: %s", self._name, type(error).__name__, error)
        self._thread.shutdown(wait=False)

    async def _apart(self, call: Callable[[], Any]) -> Any:
        return await self._thread.call(call)
