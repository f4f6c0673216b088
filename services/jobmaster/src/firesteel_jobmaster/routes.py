"""The calls that a host of JobMasters answers."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import JobMasterGateway, JobMasterHostGateway
from firesteel.rpc import RpcRequest, answers, by_token, handlers_of, rpc_routes
from firesteel.service.leaving import Leaving
from firesteel_jobmaster.shell import JobMaster


class Host(Protocol):
    """A host of JobMasters, in whichever processes these run."""

    async def start_job(self, message: m.StartJob) -> m.JobStarted: ...

    def running_jobs(self) -> m.RunningJobs:
        """The jobs that a Dispatcher may adopt."""

    def request_stop(self, leaving: Leaving) -> None:
        """End the host's process in order; see ``Service``."""


class HostedJobs(Protocol):
    """The JobMasters of this process."""

    def job(self, job_id: str) -> JobMaster:
        """The JobMaster of a job; raises ``JobNotFoundError``."""


class _HostCalls:
    """``JobMasterHostGateway``, answered by a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @answers(JobMasterHostGateway.start_job)
    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        return await self._host.start_job(message)

    @answers(JobMasterHostGateway.list_jobs)
    def list_jobs(self, _: m.Empty) -> m.RunningJobs:
        return self._host.running_jobs()

    @answers(JobMasterHostGateway.shut_down)
    def shut_down(self, _: m.Empty) -> None:
        self._host.request_stop(Leaving.END_ALL)


def host_routes(host: Host, secret: str, clock: Clock) -> list[web.RouteDef]:
    """``/rpc/<method>`` of a host."""
    calls = _HostCalls(host)
    handlers = handlers_of(JobMasterHostGateway, _HostCalls, lambda _: calls, by_token(lambda _: ""))
    return rpc_routes(handlers, secret, clock=clock)


def job_routes(host: HostedJobs, secret: str, clock: Clock) -> list[web.RouteDef]:
    """``/jobs/<job id>/rpc/<method>`` of jobs: each JobMaster answers its own."""

    def job(call: RpcRequest) -> JobMaster:
        return host.job(call.path["job_id"])

    handlers = handlers_of(JobMasterGateway, JobMaster, job, by_token(lambda call: job(call).token))
    return rpc_routes(handlers, secret, prefix="/jobs/{job_id}", clock=clock)
