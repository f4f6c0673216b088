"""Checks of a host before it runs a job."""

from __future__ import annotations

from firesteel.config import Settings
from firesteel.core.errors import ConfigurationError, FencedError, GraphError
from firesteel.core.ids import parse_job_id
from firesteel.graph.job_graph import JobGraph
from firesteel.protocol import messages as m
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.service.leaders import Candidate
from firesteel_jobmaster.settings import JobMasterSettings


def read_job(cluster: Settings, message: m.StartJob) -> tuple[JobGraph, JobMasterSettings]:
    """The graph of a job, and the settings that hold for it.

    Args:
        cluster: settings of the cluster.
        message: what the Dispatcher sent.

    Raises:
        GraphError: graph or settings are malformed.
    """
    graph = JobGraph.from_plain(message.job_graph)
    try:
        parse_job_id(graph.job_id)
        return graph, JobMasterSettings.read(cluster, graph.config)
    except ConfigurationError as error:
        raise GraphError(str(error)) from error


def other_job(job_id: str) -> GraphError:
    """The error of a job that has the id of another one."""
    return GraphError(f"another job with the id {job_id} is here already")


def leads_elsewhere(former: m.StartJob, order: m.StartJob) -> bool:
    """Whether a repeated order for a job comes from another Dispatcher than the one that the job reports to.

    An order of a former Dispatcher, with a smaller term, counts for nothing.
    """
    if order.dispatcher_term < former.dispatcher_term:
        return False
    return (former.dispatcher_address, former.dispatcher_token) != (order.dispatcher_address, order.dispatcher_token)


def check_term(job_id: str, former: m.StartJob, order: m.StartJob) -> None:
    """Check that a Dispatcher may give orders for a job; one that stood still may give orders of long ago.

    Raises:
        RpcFault: a later Dispatcher has the job.
    """
    if order.dispatcher_term < former.dispatcher_term:
        text = f"a later Dispatcher than {order.dispatcher_address} has job {job_id}"
        raise RpcFault(RpcCode.INTERNAL, text)


async def check_leads(candidate: Candidate | None) -> None:
    """Check that a host may start JobMasters; one that stood still may get orders that its successor has carried out.

    Raises:
        RpcFault: another host leads, and the Dispatcher is to ask that one; or who leads can't be read for now.
    """
    try:
        if candidate is not None:
            await candidate.check()
    except FencedError as error:
        raise RpcFault(RpcCode.INTERNAL, f"this JobMaster host leads no more: {error}") from error
    except OSError as error:
        text = f"whether this JobMaster host leads can't be read for now, ask again: {error}"
        raise RpcFault(RpcCode.INTERNAL, text) from error
