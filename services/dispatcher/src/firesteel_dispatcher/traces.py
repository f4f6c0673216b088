"""Traces of submissions: from the first byte of a request to the job that is stored."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from firesteel.core.call_pool import close_in_time
from firesteel.core.clock import Clock
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span, Tracing, Value

MAX_JOBS: Final = 1000
"""Jobs whose traces are remembered, for the calls that start their JobMasters."""


@dataclass
class Submitting:
    """A submission that is under way.

    Attributes:
        context: context of the submission's span.
        parent: span of the client that the request names.
        begin_ms: epoch ms of the begin.
        steps: name -> epoch ms of the end of the step, in order.
    """

    context: TraceContext
    parent: TraceContext | None
    begin_ms: int
    steps: dict[str, int] = field(default_factory=dict)


class SubmissionTraces:
    """Makes the trace of each submission.

    Args:
        tracing: exports spans; None = nothing is traced.
        clock: stamps them.
    """

    def __init__(self, tracing: Tracing | None, clock: Clock) -> None:
        self._tracing, self._clock = tracing, clock
        self._of_jobs: OrderedDict[str, TraceContext] = OrderedDict()

    def begin(self, header: str | None) -> Submitting:
        """A request has come; its ``traceparent`` may name a span of the client."""
        parent = TraceContext.parse(header)
        context = TraceContext.new() if parent is None else parent.child()
        return Submitting(context, parent, self._clock.epoch_ms())

    def step(self, submitting: Submitting, name: str) -> None:
        """A step of the submission is done."""
        submitting.steps[name] = self._clock.epoch_ms()

    def known(self, submitting: Submitting, job_id: str) -> None:
        """Remember the job of a submission, whose JobMaster goes on with the trace."""
        if self._tracing is not None:
            self._of_jobs.setdefault(job_id, submitting.context)
            while len(self._of_jobs) > MAX_JOBS:
                self._of_jobs.popitem(last=False)

    def of(self, job_id: str) -> str:
        """The ``traceparent`` of a job's submission; empty = there is no trace."""
        context = self._of_jobs.get(job_id)
        return "" if context is None else context.header

    def ended(self, submitting: Submitting, job_id: str = "", name: str = "", error: str = "") -> None:
        """The request is answered.

        Args:
            submitting: the submission.
            job_id, name: of the job, as far as they are known.
            error: cause of a refusal.
        """
        if self._tracing is None:
            return
        attributes: dict[str, Value] = {key: value for key, value in (("job.id", job_id), ("job.name", name)) if value}
        context, step_begin = submitting.context, submitting.begin_ms
        end = self._clock.epoch_ms()
        spans = [Span(context, "Submission", step_begin, end, submitting.parent, attributes, error=error)]
        for step, step_end in submitting.steps.items():
            spans.append(Span(context.child(), step, step_begin, step_end, context, attributes))
            step_begin = step_end
        self._tracing.export(spans)

    async def close(self) -> None:
        """Export what there is, within some seconds."""
        if self._tracing is not None:
            await close_in_time(self._tracing.close, "traces")
