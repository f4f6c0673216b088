"""Shows what the threads of a slot are doing (thread dumps, flame graphs), and which keys its tasks send most, without
disturbing the tasks."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from firesteel.core.stacks import DEPTH, ThreadSample, dump_threads, sample
from firesteel.runtime.slot.deployer import RunningTask

logger = logging.getLogger(__name__)
MOST_AT_ONCE: Final = 4
"""Most samplings at the same time."""
MOST_KEYS: Final = 50
"""Most keys of an output that are shown."""
ELSEWHERE: Final = "(another task of the slot has the thread)"
_LONGEST: Final = 120.0
Message = Mapping[str, Any]


class Inspector:
    """Answers ``inspect`` messages on the control thread; samplings run on threads of their own.

    Args:
        send: sends a message with its payload; may be called from any thread.
        tasks: returns the tasks of the slot, by execution.
    """

    def __init__(
        self, send: Callable[[dict[str, Any], bytes], None], tasks: Callable[[], Mapping[str, RunningTask]]
    ) -> None:
        self._send, self._tasks = send, tasks
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def answer(self, message: Message) -> None:
        """Answer with a dump of all threads immediately, or with samples of some tasks when these have been taken."""
        request = int(message["request_id"])
        if not message["executions"]:
            self._reply(request, dump_threads())
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= MOST_AT_ONCE or self._closing.is_set():
            self._send({"type": "inspected", "request_id": request, "error": "the slot is being sampled already"}, b"")
            return
        look = self._find_hot_keys if "hot_keys" in message else self._sample
        thread = threading.Thread(target=look, args=(request, message), name="firesteel-sampler", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, seconds: float) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(seconds)

    def _sample(self, request: int, message: Message) -> None:
        try:
            executions = set(map(str, message["executions"]))
            interval = max(0.001, float(message["interval_ms"]) / 1000)
            count = max(1, min(int(message["samples"]), int(_LONGEST / interval)))
            samples_by_execution = sample(
                lambda: self._look(executions),
                count,
                interval,
                depth=int(message.get("depth", DEPTH)),
                wanted=lambda: not self._closing.is_set(),
                sleep=self._pause,
            )
            self._reply(request, {key: samples.to_plain() for key, samples in samples_by_execution.items()})
        except Exception as error:  # trouble of sampling must not hurt the slot
            logger.exception("sampling of a slot")
            self._send({"type": "inspected", "request_id": request, "error": f"{type(error).__name__}: {error}"}, b"")

    def _find_hot_keys(self, request: int, message: Message) -> None:
        """Answer with the most frequent keys that some tasks send, as texts: the ``repr`` of a key is user code."""
        try:
            executions, most = set(map(str, message["executions"])), min(MOST_KEYS, int(message["hot_keys"]))
            rows = [
                {
                    "target": output.target,
                    "records": sketch.records,
                    "lost": sketch.lost,
                    "refusal": sketch.refusal,
                    "keys": [[key.text, key.records, output.channels[key.channel].id.down] for key in sketch.top(most)],
                }
                for execution_id, task in self._tasks().items()
                if execution_id in executions
                for output, sketch in task.task.plan.sketched_outputs()
            ]
            self._reply(request, rows)
        except Exception as error:  # trouble of a look must not hurt the slot
            logger.exception("hot keys of a slot")
            self._send({"type": "inspected", "request_id": request, "error": f"{type(error).__name__}: {error}"}, b"")

    def _pause(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _look(self, executions: set[str]) -> dict[int, list[ThreadSample]]:
        """The tasks to sample, by thread; tasks that share a thread are told apart by the one that runs now."""
        by_thread: dict[int, list[ThreadSample]] = {}
        for execution_id, task in self._tasks().items():
            if execution_id not in executions or task.guard.thread is None:
                continue
            running = task.task.loop.running
            thread_sample = ThreadSample(execution_id, "" if running is None or running is task.task else ELSEWHERE)
            by_thread.setdefault(task.guard.thread, []).append(thread_sample)
        return by_thread

    def _reply(self, request: int, answer: Any) -> None:
        self._send({"type": "inspected", "request_id": request}, json.dumps(answer).encode())
