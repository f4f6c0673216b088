"""The contract of providers: where a cluster's slots and TaskManagers come from.

A provider is one class, which brings two things that belong together: the *fleet*, which runs slots (see
``firesteel.protocol.fleet``), and the start and end of *workers*, which are TaskManagers that a provider starts. Both
talk to the same cluster manager, often through the same JVM.

To write one, derive from ``Provider``; or from ``firesteel.spark.hosted_provider.HostedProvider``, if TaskManagers are
to host Spark's executors: its ``fleet.in_jvm`` is the gateway into the JVM of Spark's driver. Then set ``is_active``
and write the methods that are about workers. Providers are found by the option ``firesteel.resourcemanager.driver`` in
the entry points ``firesteel.providers``; an entry point names the class, or whatever else takes a ``ProviderContext``
and returns a ``Provider``. ``firesteel.testing.check_provider`` holds one against this contract.

A worker's id is chosen by the ResourceManager and is the TaskManager's ``taskmanager.resource-id``: that is how the
ResourceManager knows which of the TaskManagers that register is which worker. Workers outlive the ResourceManager that
has started them; the next one recovers them.
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
    """A worker could not be started; the message says why, and what to do."""


@dataclass(frozen=True)
class ProviderContext:
    """What a provider is made of.

    Attributes:
        settings: of the cluster; workers get the same.
        secret: of the cluster; workers need it. It must not get onto a command line or into an environment.
        clock: for timeouts.
        directory: where a provider keeps what its successor has to find; of mode 0700. It makes directories of its own
            below it.
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
    """A worker that is wanted.

    Attributes:
        worker_id: ``worker-`` and twelve hexadecimal digits; never used twice in a cluster.
        slots: how many it has to have.
    """

    worker_id: str
    slots: int


class Provider:
    """One that has a fleet and starts no workers: TaskManagers are started by whoever runs the cluster.

    To make one must be cheap, and touch nothing: the ResourceManager may be a stand-by that waits for its turn, and
    calls nothing but ``stand_by`` then. All methods may block, and may be called from any thread, side by side;
    ``recover`` is called once, first, and ``terminate`` or ``close`` once, last, before the fleet is stopped or
    detached. The fleet starts beside ``recover``, and is started again when its driver was lost: until it runs, a
    provider that needs it raises ``WorkerError``, and is asked again. Of a provider that is not active nothing but
    ``stand_by`` and ``close`` is called.

    Args:
        fleet: what runs slots; the ResourceManager starts and stops it.
        is_embedded: all TaskManagers there will ever be are started beside the ResourceManager, at once: a job that
            needs more slots than they have is told so without delay.

    Attributes:
        is_active: whether it can start workers; a constant of the class.
        ends_within: seconds within which ``ended_workers`` tells of a worker that was killed, where nothing else is
            wrong. A job that fails because of that waits so long for the reason.
    """

    is_active = False
    ends_within = 2.0

    def __init__(self, fleet: Fleet, *, is_embedded: bool = False) -> None:
        self.fleet, self.is_embedded = fleet, is_embedded

    def stand_by(self) -> None:
        """The ResourceManager waits for its turn: start what makes its fleet start sooner, and touch nothing of others.

        Called again and again while it waits, never beside a call of the fleet; what is up already stays as it is.

        Raises:
            FleetError: it can't be started; the fleet starts without.
        """

    def recover(self, resourcemanager_address: str) -> list[str]:
        """Begin to work; returns the ids of workers that a former ResourceManager has started and that still run.

        They are treated from now on as if this provider had started them.

        Args:
            resourcemanager_address: base URL under which workers find the ResourceManager.

        Raises:
            WorkerError: what the former one has left can't be read.
        """
        return []

    def start_worker(self, spec: WorkerSpec) -> None:
        """Start a worker; returns once it was asked for, long before it registers.

        A worker of this id that runs already stays as it is.

        Raises:
            WorkerError: it can't be started; nothing is left of it.
        """
        raise WorkerError(f"Worker {spec.worker_id} can't be started: {type(self).__name__} starts no TaskManagers.")

    def stop_worker(self, worker_id: str) -> None:
        """Have a worker end: in order if it can, by force if it takes too long. Returns before it has ended.

        Unknown ids, and those of workers that have ended, are ignored.
        """

    def ended_workers(self) -> list[tuple[str, str]]:
        """(worker id, how it ended) of each worker that ended since the last call, whoever ended it.

        Each is reported once; nothing of it runs any more. Called often: this is also where a provider may look at
        deadlines.
        """
        return []

    def waiting_workers(self) -> dict[str, str]:
        """Worker id -> why it does not run yet, in the words of the cluster manager; those of which nothing is known to
        be wrong are left out. Asked as often as ``ended_workers``, after it. Jobs that wait show it."""
        return {}

    def terminate(self) -> None:
        """End all workers and remove all that is kept for a successor: the cluster ends in order."""

    def close(self) -> None:
        """Let go without a word: workers run on, and a successor recovers them."""
