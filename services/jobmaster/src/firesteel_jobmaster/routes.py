"""The calls that a host of JobMasters answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from firesteel.core.clock import Clock
from firesteel.protocol import messages as m
from firesteel.protocol.alignment import ReportWatermark
from firesteel.protocol.message import Message
from firesteel.protocol.split_messages import OperatorEvents
from firesteel.rpc import Handler, RpcRequest, rpc_routes
from firesteel.service.leaving import Leaving
from firesteel_jobmaster.shell import JobMaster


class Host(Protocol):
    """A host of JobMasters, in whichever processes these run."""

    async def start_job(self, message: m.StartJob) -> m.JobStarted:
        """Run a job."""

    def running_jobs(self) -> m.RunningJobs:
        """The jobs that a Dispatcher may adopt."""

    def request_stop(self, leaving: Leaving) -> None:
        """End the host's process in order; see ``Service``."""


class Jobs(Protocol):
    """The JobMasters of this process."""

    def job(self, job_id: str) -> JobMaster:
        """The JobMaster of a job; raises ``JobNotFoundError``."""


def host_routes(host: Host, secret: str, clock: Clock) -> list[web.RouteDef]:
    """``/rpc/<method>`` of a host."""

    async def start_job(request: RpcRequest) -> Mapping[str, Any]:
        return (await host.start_job(m.StartJob.from_plain(request.payload))).to_plain()

    async def list_jobs(_: RpcRequest) -> Mapping[str, Any]:
        return host.running_jobs().to_plain()

    async def shut_down(_: RpcRequest) -> Mapping[str, Any]:
        host.request_stop(Leaving.END_CLUSTER)
        return {}

    calls = {"start_job": start_job, "list_jobs": list_jobs, "shut_down": shut_down}
    return rpc_routes(calls, secret, lambda _: None, clock=clock)


def job_routes(host: Jobs, secret: str, clock: Clock) -> list[web.RouteDef]:
    """``/jobs/<job id>/rpc/<method>`` of jobs."""

    def token_of(request: RpcRequest) -> str:
        return host.job(request.path["job_id"]).token

    per_job: dict[str, Handler] = {
        "offer_slots": _handler(host, m.OfferSlots, JobMaster.offer_slots),
        "update_task_states": _handler(host, m.UpdateTaskStates, JobMaster.update_task_states),
        "request_splits": _handler(host, m.RequestSplits, JobMaster.request_splits),
        "send_operator_events": _handler(host, OperatorEvents, JobMaster.send_operator_events),
        "report_watermark": _handler(host, ReportWatermark, JobMaster.report_watermark),
        "end_of_data": _handler(host, m.ExecutionRef, JobMaster.end_of_data),
        "acknowledge_checkpoint": _handler(host, m.AcknowledgeCheckpoint, JobMaster.acknowledge_checkpoint),
        "decline_checkpoint": _handler(host, m.DeclineCheckpoint, JobMaster.decline_checkpoint),
        "trigger_checkpoint": _handler(host, m.TriggerJobCheckpoint, JobMaster.trigger_checkpoint),
        "report_metrics": _handler(host, m.ReportMetrics, JobMaster.report_metrics),
        "fail_slot": _handler(host, m.FailSlot, JobMaster.fail_slot),
        "notify_no_resources": _handler(host, m.NotifyNoResources, JobMaster.notify_no_resources),
        "cancel": _handler(host, m.Empty, lambda job, _: job.cancel("cancelled by its user")),
        "adopt": _handler(host, m.AdoptJob, JobMaster.adopt),
        "details": _handler(host, m.Empty, lambda job, _: job.details()),
        "collect": _handler(host, m.CollectFromJob, JobMaster.collect),
    }
    return rpc_routes(per_job, secret, token_of, prefix="/jobs/{job_id}", clock=clock)


def _handler(host: Jobs, kind: type[Message], method: Callable[[JobMaster, Any], Any]) -> Handler:
    async def handle(request: RpcRequest) -> Mapping[str, Any]:
        answer = method(host.job(request.path["job_id"]), kind.from_plain(request.payload))
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return {}
        return answer.to_plain() if isinstance(answer, Message) else dict(answer)

    return handle
