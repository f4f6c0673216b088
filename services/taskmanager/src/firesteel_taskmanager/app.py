"""Makes the service."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.config import Settings
from firesteel.core.clock import Clock
from firesteel.core.run_directory import RunDirectory
from firesteel_taskmanager.routes import routes
from firesteel_taskmanager.shell import TaskManagerService


def create_service(
    *,
    settings: Settings,
    secret: str,
    clock: Clock,
    run_directory: RunDirectory,
    taskmanager_id: str,
    slots: int,
    resourcemanager_address: str,
    stdout: Callable[[str], None] | None = None,
    executor_id: str = "driver",
) -> TaskManagerService:
    """A TaskManager, not started yet.

    Args:
        settings: of the cluster.
        secret: the cluster's secret.
        clock: for all timeouts.
        run_directory: for the control socket and blobs; it stays the caller's.
        taskmanager_id: names it in the cluster.
        slots: how many it begins with.
        resourcemanager_address: base URL.
        stdout: gets what slots print; by default whatever ``sys.stdout`` is at that moment.
        executor_id: Spark's name of the executor on which its slots run (``driver`` in local mode).

    Raises:
        ConfigurationError: an option has a bad value.
        RunDirectoryError: the path of the control socket would be too long.
    """
    service = TaskManagerService(
        settings=settings,
        secret=secret,
        clock=clock,
        run_directory=run_directory,
        taskmanager_id=taskmanager_id,
        slots=slots,
        resourcemanager_address=resourcemanager_address,
        stdout=stdout,
        executor_id=executor_id,
    )
    service.app.add_routes(routes(service, secret))
    return service
