"""Calls that every process of a cluster answers: levels of its loggers, stacks of its threads, records of jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from firesteel.core.call_pool import CallPool
from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.core.log_levels import levels, set_level
from firesteel.core.stacks import dump_threads, other_threads, process_name, sample
from firesteel.protocol import messages as m
from firesteel.protocol.gateways import ProcessGateway
from firesteel.protocol.message import RpcCode, RpcFault
from firesteel.rpc.answering import answers, by_token, handlers_of
from firesteel.rpc.server import rpc_routes

PREFIX: Final = "/process"
"""Path between the address of a process and ``/rpc``."""
MOST_SECONDS: Final = 120.0
"""Longest time in seconds for which stacks are sampled."""
SAMPLES: Final = CallPool("samples of threads", deadline=600.0)
"""Threads that sample; the request names the time, and ``seconds_of`` bounds it."""
LOGS: Final = CallPool("logs", deadline=20.0)
"""Threads that read logs."""


class _Calls:
    def __init__(self, changed: Callable[[str, str], None], job_log: Callable[[m.ReadJobLog], m.JobLog]) -> None:
        self._changed, self._job_log = changed, job_log

    @answers(ProcessGateway.log_levels)
    def log_levels(self, _: m.Empty) -> m.LogLevels:
        return m.LogLevels(levels())

    @answers(ProcessGateway.set_log_level)
    def set_log_level(self, message: m.SetLogLevel) -> m.LogLevels:
        set_level(message.logger, message.level)
        self._changed(message.logger, message.level)
        return m.LogLevels(levels())

    @answers(ProcessGateway.dump_threads)
    def dump_threads(self, _: m.Empty) -> m.ThreadDump:
        return m.ThreadDump(tuple(dump_threads()), process_name())

    @answers(ProcessGateway.job_log)
    async def job_log(self, message: m.ReadJobLog) -> m.JobLog:
        return await LOGS.call(self._job_log, message)

    @answers(ProcessGateway.sample_threads)
    async def sample_threads(self, message: m.SampleThreads) -> m.StackSamples:
        seconds_of(message)
        samples_by_thread = await SAMPLES.call(sample, other_threads, message.samples, message.interval_ms / 1000)
        return m.StackSamples({name: samples.to_plain() for name, samples in samples_by_thread.items()})


def seconds_of(message: m.SampleStacks | m.SampleThreads) -> float:
    """Seconds that the sampling takes.

    Raises:
        RpcFault: that is too long, or no time at all.
    """
    seconds = message.samples * message.interval_ms / 1000
    if not 0 < seconds <= MOST_SECONDS:
        raise RpcFault(RpcCode.BAD_REQUEST, f"stacks are sampled for {MOST_SECONDS:g} s at most, not {seconds:g}")
    return seconds


def process_routes(
    secret: str,
    clock: Clock,
    changed: Callable[[str, str], None] = lambda logger, level: None,
    job_log: Callable[[m.ReadJobLog], m.JobLog] = lambda request: m.JobLog(()),
) -> list[web.RouteDef]:
    """Routes by which this process answers ``ProcessGateway``.

    Args:
        secret: of the cluster.
        clock: of the process.
        changed: called with logger and level after a change.
        job_log: reads records of a job; called on a thread.
    """
    calls = _Calls(changed, job_log)
    refusals: dict[type[Exception], RpcCode] = {ConfigurationError: RpcCode.BAD_REQUEST}
    handlers = handlers_of(ProcessGateway, _Calls, lambda _: calls, by_token(lambda _: ""), refusals)
    return rpc_routes(handlers, secret, prefix=PREFIX, clock=clock)
