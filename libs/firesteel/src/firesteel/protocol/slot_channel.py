"""The control channel between a TaskManager and one slot process: framing over a Unix stream socket.

A frame is ``<u32 length of the rest> <u32 length of the JSON> <JSON object> <payload bytes>``, little endian. Every
object has a ``type``. The messages are listed in the tables below; both ends ignore fields they do not know and answer
an unknown type by closing the channel with a ``ProtocolError``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from firesteel.core.errors import ProtocolError

PROTOCOL_VERSION: Final = 1
MAX_FRAME: Final = 256 * 1024 * 1024
_LENGTHS = struct.Struct("<II")

TO_SLOT: Final = {
    "accepted": "the registration holds; fields: slot_index, taskmanager_id, log_levels (as below, or none)",
    "rejected": "return now; fields: reason",
    "wait": "the answer to the registration takes its time; fields: seconds",
    "run_in": "run the slot in another interpreter; fields: environment, python, directory, path",
    "deploy": "run these tasks; fields: deployment (see firesteel.protocol.deployment)",
    "cancel": "end tasks; fields: execution_ids (list; null = all), interval_ms (between interrupts)",
    "assign_splits": "fields: execution_id, splits (list of plain splits), no_more (bool), serial (of the splits)",
    "operator_events": "for a task that runs a user's enumerator; fields: execution_id, number, events",
    "group_watermark": "of the source's alignment group; fields: execution_id, watermark",
    "trigger_checkpoint": "inject barriers; fields: execution_ids, checkpoint_id, timestamp_ms, options",
    "checkpoint_complete": "commit what was prepared up to it; fields: execution_ids, checkpoint_id",
    "checkpoint_aborted": "it will not complete; fields: execution_ids, checkpoint_id",
    "collect": "give results; fields: request_id, execution_id, offset, max_bytes, wait_ms",
    "inspect": "say what threads do; fields: request_id, executions (whose code is sampled; empty: a dump of all "
    "threads), samples, interval_ms, depth",
    "release": "end all tasks at once and return from the Spark task",
    "log_levels": "of its loggers, from now on; fields: levels {logger: level}",
    "ping": "fields: nonce",
}
FROM_SLOT: Final = {
    "register": "first; fields: version, allocation_id, pid, spark_attempt, executor_id, data_address, environment",
    "task_state": "fields: execution_id, state, error (null or a plain TaskFailure), metrics (the final ones)",
    "request_splits": "fields: execution_id",
    "operator_events": "what a user's enumerator has decided; fields: execution_id, number, events",
    "watermark": "how far a source has come whose watermarks are aligned; fields: execution_id, group, watermark",
    "end_of_data": "all input is processed and durable, waiting for the completion of a checkpoint that it "
    "acknowledges from then on, which commits; fields: execution_id",
    "acknowledge_checkpoint": "fields: execution_id, checkpoint_id, metrics; payload = a TaskState",
    "decline_checkpoint": "fields: execution_id, checkpoint_id, reason, failure (null or a plain TaskFailure)",
    "metrics": "fields: tasks {execution_id: {...}}",
    "stdout": "payload = UTF-8 text written to sys.stdout in the slot; fields: stream (stdout|stderr)",
    "output_pipe": "what its children print can be read here; fields: stream (stdout|stderr), path (of a FIFO)",
    "log": "fields: level, logger, message, execution_id (or null), job, vertex, subtask, attempt (where known)",
    "collect_result": "fields: request_id, offset (of the first record), count, end, error; payload = pickled list",
    "inspected": "fields: request_id; payload = JSON: threads (as in a thread dump), or {execution_id: samples}",
    "temporary_files": "fields: add (list), remove (list), keep {path: first checkpoint that needs it}",
    "pong": "fields: nonce",
}


def encode(message: dict[str, Any], payload: bytes = b"") -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(text) + len(payload), len(text)) + text + payload


class FrameDecoder:
    """Turns received bytes into frames.

    Args:
        peer: name of the peer, for errors.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the frames that are complete now, as (message, payload).

        Raises:
            ProtocolError: a frame is malformed; the channel must be closed.
        """
        self._buffer += data
        while len(self._buffer) >= _LENGTHS.size:
            length, text_length = _LENGTHS.unpack_from(self._buffer)
            if length > MAX_FRAME or text_length + 4 > length:
                raise ProtocolError(self._peer, f"frame of {length} bytes with {text_length} bytes of JSON")
            end = 4 + length
            if len(self._buffer) < end:
                return
            text = bytes(self._buffer[8 : 8 + text_length])
            payload = bytes(self._buffer[8 + text_length : end])
            del self._buffer[:end]
            try:
                message = json.loads(text)
            except ValueError as error:
                raise ProtocolError(self._peer, f"frame is not JSON: {error}") from error
            if not isinstance(message, dict) or not isinstance(message.get("type"), str):
                raise ProtocolError(self._peer, "frame is not an object with a type")
            yield message, payload
