"""Holds a worker driver against its contract (``firesteel.protocol.worker_driver``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from firesteel.protocol.worker_driver import WorkerDriver, WorkerError, WorkerSpec

_POLL = 0.05
_NOWHERE = "http://127.0.0.1:9"
"""The workers of the check need not find a ResourceManager."""


@dataclass
class _Check:
    driver: WorkerDriver
    runs: Callable[[str], bool]
    patience: float
    ended: dict[str, str] = field(default_factory=dict)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look again and again, and gather what the driver reports."""
        deadline = time.monotonic() + self.patience
        while True:
            for worker_id, cause in self.driver.ended_workers():
                _require(worker_id not in self.ended, f"the end of {worker_id} is reported twice")
                _require(bool(cause), f"the end of {worker_id} is reported without a cause")
                _require(not self.runs(worker_id), f"{worker_id} runs though its end is reported")
                self.ended[worker_id] = cause
            if condition():
                return
            _require(time.monotonic() < deadline, f"{what}: not within {self.patience:g} s")
            time.sleep(_POLL)

    def start(self, *names: str) -> None:
        """Start workers and see them run."""
        for name in names:
            self.driver.start_worker(WorkerSpec(name, 1))
        self.until(lambda: all(self.runs(name) for name in names), f"{', '.join(names)} run after start_worker()")


def check_worker_driver(
    make_driver: Callable[[], WorkerDriver],
    runs: Callable[[str], bool] = lambda _: False,
    kill: Callable[[str], None] = lambda _: None,
    *,
    patience: float = 60.0,
) -> None:
    """Start, stop, kill and recover workers; at the end none is left.

    Args:
        make_driver: makes a driver for an empty cluster; each time for the same one.
        runs: whether a worker of this id runs, found out without the driver. Not needed for a driver that is not
            active, and neither is the next one.
        kill: has a worker of this id end without the driver.
        patience: seconds to wait for each thing that takes time.

    Raises:
        AssertionError: says which rule is broken.
    """
    driver = make_driver()
    if not driver.is_active:
        try:
            driver.start_worker(WorkerSpec("none", 1))
        except WorkerError:
            driver.close()
            return
        raise AssertionError("start_worker() of a driver that is not active does not raise WorkerError")
    _require(driver.recover(_NOWHERE) == [], "recover() finds workers in an empty cluster")
    check = _Check(driver, runs, patience)
    _start_and_stop(check)
    _end_by_itself(check, kill)
    check.start("check-d", "check-e")
    driver.close()
    successor = make_driver()
    _succeed(_Check(successor, runs, patience))
    last = make_driver()
    _require(last.recover(_NOWHERE) == [], "recover() finds workers after terminate()")
    last.terminate()


def _start_and_stop(check: _Check) -> None:
    check.start("check-a", "check-b")
    check.driver.start_worker(WorkerSpec("check-a", 1))
    check.driver.stop_worker("check-unknown")
    check.driver.stop_worker("check-a")
    check.driver.stop_worker("check-a")
    check.until(lambda: "check-a" in check.ended, "the end of a worker is reported after stop_worker()")
    check.driver.stop_worker("check-a")
    _require(set(check.ended) == {"check-a"}, f"the end of others is reported, too: {check.ended}")
    _require(check.runs("check-b"), "stop_worker() ended another worker, too")


def _end_by_itself(check: _Check, kill: Callable[[str], None]) -> None:
    kill("check-b")
    check.until(lambda: "check-b" in check.ended, "the end of a worker is reported that nobody has stopped")
    check.start("check-c")
    _require(not check.runs("check-b"), "a worker that has ended is started again")
    check.driver.stop_worker("check-c")
    check.until(lambda: "check-c" in check.ended, "the end of a worker is reported after stop_worker()")


def _succeed(check: _Check) -> None:
    """A driver that follows another one which was closed, or died."""
    driver = check.driver
    found = driver.recover(_NOWHERE)
    _require(sorted(found) == ["check-d", "check-e"], f"recover() finds {found} instead of check-d and check-e")
    _require(check.runs("check-d") and check.runs("check-e"), "workers do not outlive their driver")
    driver.start_worker(WorkerSpec("check-d", 1))
    driver.stop_worker("check-d")
    check.until(lambda: "check-d" in check.ended, "the end of a recovered worker is reported after stop_worker()")
    check.start("check-f")
    driver.terminate()
    left = [name for name in ("check-e", "check-f") if check.runs(name)]
    _require(not left, f"{', '.join(left)} run after terminate()")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
