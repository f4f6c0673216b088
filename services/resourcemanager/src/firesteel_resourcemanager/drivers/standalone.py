"""The passive driver: TaskManagers are started by whoever runs the cluster."""

from __future__ import annotations

from firesteel.protocol.worker_driver import WorkerDriverContext, WorkerError, WorkerSpec


class StandaloneDriver:
    """Starts nothing.

    Args:
        context: not needed.
    """

    def __init__(self, context: WorkerDriverContext | None = None) -> None:
        pass

    @property
    def is_active(self) -> bool:
        """No."""
        return False

    def recover(self, resourcemanager_address: str) -> list[str]:
        """None: there are no workers."""
        return []

    def start_worker(self, spec: WorkerSpec) -> None:
        """Not possible.

        Raises:
            WorkerError: always.
        """
        raise WorkerError(f"Worker {spec.worker_id} can't be started: the driver is standalone. Start a TaskManager.")

    def stop_worker(self, worker_id: str) -> None:
        """Nothing: TaskManagers are not this driver's to stop."""

    def ended_workers(self) -> list[tuple[str, str]]:
        """None."""
        return []

    def terminate(self) -> None:
        """Nothing: TaskManagers go on and wait for another ResourceManager."""

    def close(self) -> None:
        """Nothing to let go."""
