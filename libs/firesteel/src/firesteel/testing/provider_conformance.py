"""Tests a provider against its contract (``firesteel.protocol.provider``), as far as that needs no running slots."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from firesteel.core.errors import FleetError
from firesteel.protocol.fleet import Fleet, SlotLaunch
from firesteel.protocol.provider import Provider, WorkerError, WorkerSpec
from firesteel.testing.rules import require

_POLL = 0.05
_NOWHERE = "http://127.0.0.1:9"
"""The workers of the check need not find a ResourceManager."""
_A, _B, _C, _D, _E, _F, _UNKNOWN = (f"worker-c0ffee00000{digit}" for digit in "abcdef0")
"""Ids of workers in the form of the ResourceManager's."""


@dataclass
class _Check:
    provider: Provider
    runs: Callable[[str], bool]
    patience: float
    ended: dict[str, str] = field(default_factory=dict)

    def until(self, condition: Callable[[], bool], step: str) -> None:
        """Wait for a condition, and collect the ends of workers that the provider reports meanwhile."""
        deadline = time.monotonic() + self.patience
        while True:
            for worker_id, cause in self.provider.ended_workers():
                require(worker_id not in self.ended, f"the end of {worker_id} is reported twice")
                require(bool(cause), f"the end of {worker_id} is reported without a cause")
                require(not self.runs(worker_id), f"{worker_id} runs though its end is reported")
                self.ended[worker_id] = cause
            if condition():
                return
            require(time.monotonic() < deadline, f"{step}: not within {self.patience:g} s")
            time.sleep(_POLL)

    def start(self, *names: str) -> None:
        """Start workers, and wait until they run."""
        for name in names:
            self.provider.start_worker(WorkerSpec(name, 1))
        self.until(lambda: all(self.runs(name) for name in names), f"{', '.join(names)} run after start_worker()")


def check_provider(
    make_provider: Callable[[], Provider],
    runs: Callable[[str], bool] = lambda _: False,
    kill: Callable[[str], None] = lambda _: None,
    *,
    patience: float = 60.0,
) -> None:
    """Check a fleet that was not started; start, stop, kill and recover workers; at the end none must be left.

    Args:
        make_provider: makes a provider for a cluster that is empty at first, the same cluster each time.
        runs: returns whether the worker with this id runs, without using the provider. A provider that is not active
            needs neither this function nor the next one.
        kill: ends the worker with this id, without using the provider.
        patience: seconds to wait for each step that takes time.

    Raises:
        AssertionError: the message says which rule is broken.
    """
    provider = make_provider()
    _check_fleet(provider.fleet)
    if not provider.is_active:
        try:
            provider.start_worker(WorkerSpec(_A, 1))
        except WorkerError:
            provider.close()
            return
        raise AssertionError("start_worker() of a provider that is not active does not raise WorkerError")
    require(provider.recover(_NOWHERE) == [], "recover() finds workers in an empty cluster")
    check = _Check(provider, runs, patience)
    _start_and_stop(check)
    _end_by_itself(check, kill)
    check.start(_D, _E)
    provider.close()
    successor = make_provider()
    _succeed(_Check(successor, runs, patience))
    last = make_provider()
    require(last.recover(_NOWHERE) == [], "recover() finds workers after terminate()")
    last.terminate()


def _check_fleet(fleet: Fleet) -> None:
    """Check a fleet that was not started."""
    require(
        not fleet.is_alive(),
        "the fleet is alive before it was started: the constructor of a provider must start nothing",
    )
    require(fleet.ended_slots() == [], "a fleet that was not started reports the end of slots")
    fleet.cancel_slot("check-unknown")
    try:
        fleet.start_slot(SlotLaunch("check", "check", "1", "/nowhere"))
    except FleetError:
        pass
    else:
        raise AssertionError("start_slot() of a fleet that was not started does not raise FleetError")
    fleet.detach()
    fleet.stop()
    fleet.stop()
    require(not fleet.is_alive(), "the fleet is alive after stop()")


def _start_and_stop(check: _Check) -> None:
    check.start(_A, _B)
    check.provider.start_worker(WorkerSpec(_A, 1))
    check.provider.stop_worker(_UNKNOWN)
    check.provider.stop_worker(_A)
    check.provider.stop_worker(_A)
    check.until(lambda: _A in check.ended, "the end of a worker is reported after stop_worker()")
    check.provider.stop_worker(_A)
    require(set(check.ended) == {_A}, f"the end of others is reported, too: {check.ended}")
    require(check.runs(_B), "stop_worker() ended another worker, too")


def _end_by_itself(check: _Check, kill: Callable[[str], None]) -> None:
    kill(_B)
    check.until(lambda: _B in check.ended, "the end of a worker is reported that nobody has stopped")
    check.start(_C)
    require(not check.runs(_B), "a worker that has ended is started again")
    check.provider.stop_worker(_C)
    check.until(lambda: _C in check.ended, "the end of a worker is reported after stop_worker()")


def _succeed(check: _Check) -> None:
    """Check a provider that follows another one, which was closed or has died."""
    provider = check.provider
    recovered = provider.recover(_NOWHERE)
    require(sorted(recovered) == [_D, _E], f"recover() finds {recovered} instead of {_D} and {_E}")
    require(check.runs(_D) and check.runs(_E), "workers do not outlive their provider")
    provider.start_worker(WorkerSpec(_D, 1))
    provider.stop_worker(_D)
    check.until(lambda: _D in check.ended, "the end of a recovered worker is reported after stop_worker()")
    check.start(_F)
    provider.terminate()
    still_running = [name for name in (_E, _F) if check.runs(name)]
    require(not still_running, f"{', '.join(still_running)} run after terminate()")
