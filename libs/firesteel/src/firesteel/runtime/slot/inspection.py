"""Tells what the threads of a slot do, whatever its tasks are doing: user code does not notice."""

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
"""Samplings that may go on at the same time."""
ELSEWHERE: Final = "(another task of the slot has the thread)"
_LONGEST: Final = 120.0
Message = Mapping[str, Any]


class Inspector:
    """Answers ``inspect``, on the control thread; samples on threads that end with it.

    Args:
        send: a message with its payload, from any thread.
        tasks: those of the slot, by execution.
    """

    def __init__(
        self, send: Callable[[dict[str, Any], bytes], None], tasks: Callable[[], Mapping[str, RunningTask]]
    ) -> None:
        self._send, self._tasks = send, tasks
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def answer(self, message: Message) -> None:
        """A dump of all threads at once; samples when they have been taken."""
        request = int(message["request_id"])
        if not message["executions"]:
            self._reply(request, dump_threads())
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= MOST_AT_ONCE or self._closing.is_set():
            self._send({"type": "inspected", "request_id": request, "error": "the slot is being sampled already"}, b"")
            return
        thread = threading.Thread(target=self._sample, args=(request, message), name="firesteel-sampler", daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self, seconds: float) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(seconds)

    def _sample(self, request: int, message: Message) -> None:
        try:
            wanted = {str(one) for one in message["executions"]}
            interval = max(0.001, float(message["interval_ms"]) / 1000)
            count = max(1, min(int(message["samples"]), int(_LONGEST / interval)))
            found = sample(
                lambda: self._look(wanted),
                count,
                interval,
                depth=int(message.get("depth", DEPTH)),
                wanted=lambda: not self._closing.is_set(),
                sleep=self._pause,
            )
            self._reply(request, {key: samples.to_plain() for key, samples in found.items()})
        except Exception as error:  # it must not hurt the slot
            logger.exception("sampling of a slot")
            self._send({"type": "inspected", "request_id": request, "error": f"{type(error).__name__}: {error}"}, b"")

    def _pause(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _look(self, wanted: set[str]) -> dict[int, list[ThreadSample]]:
        found: dict[int, list[ThreadSample]] = {}
        for execution_id, one in self._tasks().items():
            if execution_id not in wanted or one.guard.thread is None:
                continue
            running = one.task.loop.running
            seen = ThreadSample(execution_id, "" if running is None or running is one.task else ELSEWHERE)
            found.setdefault(one.guard.thread, []).append(seen)
        return found

    def _reply(self, request: int, answer: Any) -> None:
        self._send({"type": "inspected", "request_id": request}, json.dumps(answer).encode())
