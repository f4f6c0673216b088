"""The contract of worker drivers: how a ResourceManager comes by TaskManagers and gets rid of them.

A worker is a TaskManager that a driver starts. Its id is chosen by the ResourceManager and is the TaskManager's
``taskmanager.resource-id``: that is how the ResourceManager knows which of the TaskManagers that register is which
worker. Workers outlive the ResourceManager that has started them; the next one recovers them.

Drivers are found by the option ``firesteel.resourcemanager.driver`` in the entry points ``firesteel.worker_drivers``;
an entry point names something that takes a ``WorkerDriverContext`` and returns a ``WorkerDriver``, such as a class.
``firesteel.testing.check_worker_driver`` holds a driver against this contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from firesteel.config.settings import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import FiresteelError


class WorkerError(FiresteelError):
    """A worker could not be started; the message says why, and what to do."""


@dataclass(frozen=True)
class WorkerDriverContext:
    """What a driver is made of.

    Attributes:
        settings: of the cluster; workers get the same.
        secret: of the cluster; workers need it. It must not get onto a command line or into an environment.
        clock: for timeouts.
        directory: where the driver keeps what its successor has to find; of mode 0700. A driver makes a directory of
            its own below it.
    """

    settings: Settings
    secret: str = field(repr=False)
    clock: Clock
    directory: Path


@dataclass(frozen=True)
class WorkerSpec:
    """A worker that is wanted.

    Attributes:
        worker_id: letters, digits and ``-``; never used twice in a cluster.
        slots: how many it has to have.
    """

    worker_id: str
    slots: int


class WorkerDriver(Protocol):
    """Starts and stops workers. All methods but ``is_active`` may block and be called from any thread, side by side.

    ``recover`` is called once, first; nothing is called after ``terminate`` or ``close``. None of them is called on a
    driver that is not active, but ``close``.
    """

    @property
    def is_active(self) -> bool:
        """Whether it can start workers; if not, TaskManagers are started by whoever runs the cluster."""

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Begin to work; returns the ids of workers that a former ResourceManager has started and that still run.

        They are treated from now on as if this driver had started them.

        Args:
            resourcemanager_address: base URL under which workers find the ResourceManager.

        Raises:
            WorkerError: what the former one has left can't be read.
        """

    def start_worker(self, spec: WorkerSpec) -> None:
        """Start a worker; returns once it was asked for, long before it registers.

        A worker of this id that runs already stays as it is.

        Raises:
            WorkerError: it can't be started; nothing is left of it.
        """

    def stop_worker(self, worker_id: str) -> None:
        """Have a worker end: in order if it can, by force if it takes too long. Returns before it has ended.

        Unknown ids, and those of workers that have ended, are ignored.
        """

    def ended_workers(self) -> list[tuple[str, str]]:
        """(worker id, how it ended) of each worker that ended since the last call, whoever ended it.

        Each is reported once; nothing of it runs any more. Called often: this is also where a driver may look at
        deadlines.
        """

    def terminate(self) -> None:
        """End all workers and remove all that is kept for a successor: the cluster ends in order."""

    def close(self) -> None:
        """Let go without a word: workers run on, and a successor recovers them."""
