"""The jobs of a cluster, whoever has submitted them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel.client.loop_thread import LoopThread
    from firesteel.client.rest_client import RestClient


class RestClusterJobs:
    """The jobs of a cluster by its REST API.

    Args:
        rest: of the cluster.
        loop: the thread on which ``rest`` lives.
    """

    def __init__(self, rest: RestClient, loop: LoopThread) -> None:
        self._rest, self._loop = rest, loop

    def overview(self) -> list[dict[str, Any]]:
        """The ``jobs`` of ``GET /jobs/overview``.

        Raises:
            RpcError: the cluster does not answer.
        """
        answer = self._loop.run(self._rest.get("/jobs/overview"))
        return list(answer["jobs"])

    def cancel(self, job_id: str) -> None:
        """Cancel a job.

        Raises:
            JobNotFoundError: there is no such job.
            RpcError: the cluster does not answer.
        """
        self._loop.run(self._rest.cancel(job_id))

    def stop(self, job_id: str, *, drain: bool) -> str:
        """Stop a job with a savepoint, and wait for it; returns the savepoint's path.

        Args:
            job_id: of the job.
            drain: event time ends before the savepoint.

        Raises:
            JobNotFoundError: there is no such job.
            CheckpointError: there is no savepoint; the job goes on.
            RpcError: the cluster does not answer.
        """

        async def stopped() -> str:
            trigger_id = uuid.uuid4().hex
            await self._rest.stop(job_id, trigger_id, None, drain=drain)
            return await self._rest.savepoint_location(job_id, trigger_id)

        return self._loop.run(stopped())
