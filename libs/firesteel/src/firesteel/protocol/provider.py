"""The contract of providers: where a cluster's slots and TaskManagers come from.

A provider is one class, which brings two things that belong together: the *fleet*, which runs slots (see
``firesteel.protocol.fleet``), and the start and end of *workers*, which are TaskManagers that a provider starts. Both
talk to the same cluster manager, often through the same JVM.

To write one, derive from ``Provider``; or from ``firesteel.spark.hosted_provider.HostedProvider``, if TaskManagers are
to host Spark's executors: its ``fleet.in_jvm`` is the gateway into the JVM of Spark's driver. Then set ``is_active``
and write the methods that are about workers. Providers are found by the option ``firesteel.resourcemanager.driver`` in
the entry points ``firesteel.providers``; an entry point names the class, or another callable that takes a
``ProviderContext`` and returns a ``Provider``. ``firesteel.testing.check_provider`` checks a provider against this
contract.

The ResourceManager chooses the id of a worker, which becomes the TaskManager's ``taskmanager.resource-id``. By it the
ResourceManager recognizes the worker when it registers. Workers outlive the ResourceManager that has started them; the
next one recovers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.config.settings import Settings
from firesteel.core.clock import Clock
from firesteel.core.errors import FiresteelError
from firesteel.protocol.fleet import Fleet


class WorkerError(FiresteelError):
    """A worker could not be started; the message has the cause, and what to do."""


@dataclass(frozen=True)
class ProviderContext:
    """The cluster's settings and directories for a provider.

    Attributes:
        settings: of the cluster; workers get the same.
        secret: of the cluster; workers need it. It must not get onto a command line or into an environment.
        clock: for timeouts.
        directory: for files that a successor has to find; of mode 0700. A provider makes directories of its own in it.
        slot_main: the function that a slot runs.
        stage_main: the function that a task of a bounded stage runs; None = there are none.
        bind_host: address that a server of the provider binds to.
        advertised_host: name or address under which other hosts reach it.
    """

    settings: Settings
    secret: str = field(repr=False)
    clock: Clock
    directory: Path
    slot_main: Callable[..., Any]
    bind_host: str = "127.0.0.1"
    advertised_host: str = "127.0.0.1"
    stage_main: Callable[..., Any] | None = None


@dataclass(frozen=True)
class WorkerSpec:
    """A worker that is to be started.

    Attributes:
        worker_id: ``worker-`` and twelve hexadecimal digits; never used twice in a cluster.
        slots: number of its slots.
    """

    worker_id: str
    slots: int


class Provider:
    """A provider with a fleet that starts no workers: the operator of the cluster starts the TaskManagers.

    The constructor must be cheap, and change nothing outside: the ResourceManager may be a stand-by that waits for its
    turn, and calls only ``stand_by`` then. All methods may block, and may be called from any thread, several at a time.
    ``recover`` is called once, first, and ``terminate`` or ``close`` once, last, before the fleet is stopped or
    detached. The fleet starts while ``recover`` runs, and is started again when its driver was lost. Until it runs, a
    provider that needs it raises ``WorkerError``, and is called again. Of a provider that is not active only
    ``stand_by`` and ``close`` are called.

    Args:
        fleet: runs slots; the ResourceManager starts and stops it.
        is_embedded: whether all TaskManagers are started beside the ResourceManager, at the start. A job that needs
            more slots than they have then fails without delay.

    Attributes:
        is_active: whether it can start workers; a constant of the class.
        ends_within: seconds within which ``ended_workers`` reports a worker that was killed, if nothing else is wrong.
            A job that fails because of that waits so long for the cause.
    """

    is_active = False
    ends_within = 2.0

    def __init__(self, fleet: Fleet, *, is_embedded: bool = False) -> None:
        self.fleet, self.is_embedded = fleet, is_embedded

    def stand_by(self) -> None:
        """Start whatever makes the fleet start sooner, while the ResourceManager waits for its turn.

        Called repeatedly, never during a call of the fleet; it must leave alone what runs already, and what belongs to
        the leader.

        Raises:
            FleetError: the start failed; the fleet will start without it.
        """

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Begin to work; returns the ids of running workers that a former ResourceManager has started.

        From now on this provider treats them as its own.

        Args:
            resourcemanager_address: base URL under which workers find the ResourceManager.

        Raises:
            WorkerError: the records of the former ResourceManager can't be read.
        """
        return []

    def start_worker(self, spec: WorkerSpec) -> None:
        """Request a worker; returns long before it registers.

        A worker with this id that runs already stays as it is.

        Raises:
            WorkerError: the worker can't be started; nothing is left of it.
        """
        raise WorkerError(f"Worker {spec.worker_id} can't be started: {type(self).__name__} starts no TaskManagers.")

    def stop_worker(self, worker_id: str) -> None:
        """Stop a worker: in order if possible, by force if it takes too long. Returns before it has ended.

        Unknown ids, and those of workers that have ended, are ignored.
        """

    def ended_workers(self) -> list[tuple[str, str]]:
        """(worker id, description of the end) of each worker that ended since the last call, for any reason.

        Each is reported once, when all of it has ended. This method is called often, so a provider may check deadlines
        here.
        """
        return []

    def waiting_workers(self) -> dict[str, str]:
        """Worker id -> why the worker does not run yet, in the words of the cluster manager.

        Workers without known trouble are left out. Called after each ``ended_workers``; jobs that wait show the reason.
        """
        return {}

    def terminate(self) -> None:
        """End all workers and remove all records for a successor, as the cluster ends in order."""

    def close(self) -> None:
        """Stop without ending workers: they run on, and a successor recovers them."""
