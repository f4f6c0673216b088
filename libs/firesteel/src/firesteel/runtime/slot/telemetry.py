"""Exports spans of a slot's tasks by OpenTelemetry: of their starts, of checkpoints, and those that functions open.

It is used only if the cluster has reporters that speak OTLP.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from firesteel.core.clock import Clock
from firesteel.core.errors import ConfigurationError
from firesteel.graph.execution_states import ExecutionState
from firesteel.otel.meters import Meters
from firesteel.otel.settings import OtlpReporter
from firesteel.protocol.deployment import Deployment, TaskDescriptor
from firesteel.traces.context import TraceContext
from firesteel.traces.tracing import Span, Tracing, Value, current_header

__all__ = ["SlotTelemetry"]

logger = logging.getLogger(__name__)
CLOSE_SECONDS: Final = 1.0
"""Time for exporting the last spans and values; a process that does not return is killed soon after."""
_PHASES: Final = {"async_ms": "Async", "sync_ms": "Sync", "alignment_ms": "Alignment"}
"""Metrics and span names of the phases of a checkpoint in a task, the last phase first."""


@dataclass
class _Attempt:
    context: TraceContext
    about: Mapping[str, Value]
    received_ms: int
    begun_ms: int
    open_ms: int = 0
    runs: bool = False


class SlotTelemetry:
    """The spans and metrics of one slot process.

    Args:
        allocation_id: allocation id of the slot.
        clock: stamps spans.
    """

    def __init__(self, allocation_id: str, clock: Clock) -> None:
        self._allocation_id, self._clock = allocation_id, clock
        self._tracing: Tracing | None = None
        self._meters: Meters | None = None
        self._refused = False
        self._attempts: dict[str, _Attempt] = {}
        self._job_id = ""

    def prepare(self, deployment: Deployment) -> None:
        """Prepare for the tasks of a deployment; if OpenTelemetry is not installed, warn once and export nothing."""
        self._job_id = deployment.job_id
        if self._refused:
            return
        trace = deployment.trace
        resource = {
            "service.instance.id": self._allocation_id,
            "job.id": deployment.job_id,
            "job.name": deployment.job_name,
        }
        try:
            if self._tracing is None and trace.get("reporters"):
                self._tracing = Tracing(map(OtlpReporter.from_plain, trace["reporters"]), "slot", resource)
                self._tracing.serve_users()
            if self._meters is None and trace.get("metrics"):
                self._meters = Meters([*map(OtlpReporter.from_plain, trace["metrics"])], "slot", resource)
                self._meters.serve_users()
        except ConfigurationError as error:
            self._refused = True
            logger.warning("what the tasks of this slot do is not exported: %s", error)

    def begin(
        self, deployment: Deployment, task: TaskDescriptor, received_ms: int, begun_ms: int
    ) -> Callable[[Callable[[], None]], None] | None:
        """Begin the trace of an attempt.

        Args:
            deployment: its deployment.
            task: the attempt.
            received_ms: when the slot got it (epoch).
            begun_ms: when former attempts had ended (epoch).

        Returns:
            A function that makes a call within the span of the attempt, so that spans which its code opens are below
            it; None if there are no traces.
        """
        above = TraceContext.parse(deployment.trace.get("traceparent"))
        if above is None or self._tracing is None:
            return None
        about: dict[str, Value] = {
            "job.id": deployment.job_id,
            "job.name": deployment.job_name,
            "vertex.id": task.vertex_id,
            "vertex.name": task.vertex_name,
            "subtask": task.subtask,
            "attempt": task.attempt,
        }
        context = above.below(task.execution_id)
        self._attempts[task.execution_id] = _Attempt(context, about, received_ms, begun_ms)
        return self._tracing.below(context, about)

    def moved(self, execution_id: str, state: ExecutionState, error: str = "") -> None:
        """Note a state of an attempt; the spans of its start are exported once it runs or has failed."""
        attempt = self._attempts.get(execution_id)
        if attempt is None:
            return
        if state is ExecutionState.INITIALIZING:
            attempt.open_ms = self._clock.epoch_ms()
        elif not attempt.runs:
            attempt.runs = True
            self._started(attempt, error)
        if state.is_terminal:
            self._attempts.pop(execution_id, None)

    def _started(self, attempt: _Attempt, error: str) -> None:
        now = self._clock.epoch_ms()
        built = attempt.open_ms or now
        steps = {
            "Wait": (attempt.received_ms, attempt.begun_ms),
            "Build": (attempt.begun_ms, built),
            "Open": (built, now),
        }
        above = attempt.context.below("Initialize")
        self._export(
            [
                Span(above.below(name), name, begin, end, above, attempt.about, error=error if end == now else "")
                for name, (begin, end) in steps.items()
                if end > begin or name == "Open"
            ]
        )

    def acknowledged(self, execution_id: str, checkpoint_id: int, metrics: Mapping[str, Any]) -> None:
        """Export spans for the phases of a checkpoint that an attempt acknowledges at this moment."""
        attempt = self._attempts.get(execution_id)
        if attempt is None:
            return
        above = TraceContext.of_checkpoint(self._job_id, checkpoint_id).below(execution_id)
        about = {**attempt.about, "checkpoint.id": checkpoint_id}
        end, spans = self._clock.epoch_ms(), []
        for metric, name in _PHASES.items():
            begin = end - max(0, int(metrics.get(metric) or 0))
            spans.append(Span(above.below(name), name, begin, end, above, about))
            end = begin
        self._export(spans)

    def _export(self, spans: list[Span]) -> None:
        if self._tracing is not None:
            try:
                self._tracing.export(spans)
            except Exception:  # trouble of telemetry must not disturb the task
                logger.exception("spans are lost")

    def log_fields(self) -> dict[str, Any]:
        """Fields of a log record that name the span which is open in the calling thread."""
        header = "" if self._tracing is None else current_header()
        return {"traceparent": header} if header else {}

    def close(self) -> None:
        """Export the last spans and values, for at most ``CLOSE_SECONDS`` each."""
        if self._tracing is not None:
            self._tracing.close(CLOSE_SECONDS)
        if self._meters is not None:
            self._meters.close(CLOSE_SECONDS)
