"""Answers ``collect`` requests, by which clients fetch results of ``execute_and_collect``; long polls wait here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.graph.execution_states import ExecutionState
from firesteel.runtime.loop.loop import Handle, TaskLoop
from firesteel.runtime.operators import CollectOperator, Consumer


@dataclass(eq=False)
class _Waiting:
    request_id: int
    offset: int
    max_bytes: int
    timer: Handle


class CollectServer:
    """Serves the results of all collect operators of a slot, on the main loop; operators may run on other threads.

    Args:
        loop: the main loop.
        send: sends a message with a payload over the control channel.
    """

    def __init__(self, loop: TaskLoop, send: Callable[[dict[str, Any], bytes], None]) -> None:
        self._loop, self._send = loop, send
        self._operators: dict[str, CollectOperator] = {}
        self._on_error: dict[str, Callable[[BaseException], None]] = {}
        self._ended: dict[str, ExecutionState] = {}
        self._waiting: dict[str, list[_Waiting]] = {}

    def serve(
        self, execution_id: str, consumers: Sequence[Consumer], on_error: Callable[[BaseException], None]
    ) -> None:
        """Serve the results of a task, if one of its consumers collects any; ``on_error`` fails the task."""
        for consumer in consumers:
            if isinstance(consumer, CollectOperator):
                self._operators[execution_id], self._on_error[execution_id] = consumer, on_error
                consumer.on_results = lambda: self._loop.call_soon_threadsafe(lambda: self._results(execution_id))

    def forget(self, execution_id: str) -> None:
        """Forget an attempt that has ended, because another one takes its place."""
        self._operators.pop(execution_id, None)
        self._on_error.pop(execution_id, None)
        self._ended.pop(execution_id, None)

    def request(self, request_id: int, execution_id: str, offset: int, max_bytes: int, wait: float) -> None:
        """Answer a request now, or when results or the end come, or after ``wait`` seconds without results."""
        operator = self._operators.get(execution_id)
        ended = self._ended.get(execution_id)
        if ended is not None:
            self._after_end(request_id, offset, execution_id, ended)
        elif operator is None:
            self._error(request_id, offset, f"execution {execution_id} has no results in this slot")
        elif wait <= 0 or operator.ready(offset):
            self._answer(request_id, execution_id, offset, max_bytes)
        else:
            # The client waits for new results, and so has all before: free their room while it waits.
            try:
                if operator.opened:
                    operator.acknowledge(offset)
            except ValueError as error:
                self._error(request_id, offset, str(error))
                return
            timer = self._loop.call_later(wait, lambda: self._time_out(execution_id, entry))
            entry = _Waiting(request_id, offset, max_bytes, timer)
            self._waiting.setdefault(execution_id, []).append(entry)

    def _results(self, execution_id: str) -> None:
        operator = self._operators.get(execution_id)
        if operator is None:
            return
        for entry in self._waiting.pop(execution_id, []):
            if operator.ready(entry.offset):
                entry.timer.cancel()
                self._answer(entry.request_id, execution_id, entry.offset, entry.max_bytes)
            else:
                self._waiting.setdefault(execution_id, []).append(entry)

    def _time_out(self, execution_id: str, entry: _Waiting) -> None:
        waiting = self._waiting.get(execution_id, [])
        if entry in waiting:
            waiting.remove(entry)
            self._answer(entry.request_id, execution_id, entry.offset, entry.max_bytes)

    def ended(self, execution_id: str, state: ExecutionState) -> None:
        """Answer all waiting requests of a task that has ended."""
        if execution_id in self._operators:
            self._ended[execution_id] = state
            del self._operators[execution_id], self._on_error[execution_id]
            for entry in self._waiting.pop(execution_id, []):
                entry.timer.cancel()
                self._after_end(entry.request_id, entry.offset, execution_id, state)

    def _after_end(self, request_id: int, offset: int, execution_id: str, state: ExecutionState) -> None:
        if state is ExecutionState.FINISHED:
            self._reply(request_id, offset, 0, True, b"", None)
        else:
            self._error(request_id, offset, f"execution {execution_id} has ended as {state.value}")

    def _answer(self, request_id: int, execution_id: str, offset: int, max_bytes: int) -> None:
        operator = self._operators[execution_id]
        if not operator.opened:
            self._reply(request_id, offset, 0, False, b"", None)
            return
        try:
            results = operator.fetch(offset, max_bytes)
        except ValueError as error:  # the JobMaster asks again, as the job may still get to that offset
            self._error(request_id, offset, str(error))
        except BaseException as error:  # a result that can't be pickled fails the task, and so the client learns of it
            self._error(request_id, offset, f"{type(error).__name__}: {error}")
            self._on_error[execution_id](error)
        else:
            self._reply(request_id, results.offset, results.count, results.end, results.data, None)

    def _error(self, request_id: int, offset: int, text: str) -> None:
        self._reply(request_id, offset, 0, False, b"", text)

    def _reply(self, request_id: int, offset: int, count: int, end: bool, data: bytes, error: str | None) -> None:
        self._send(
            {
                "type": "collect_result",
                "request_id": request_id,
                "offset": offset,
                "count": count,
                "end": end,
                "error": error,
            },
            data,
        )
