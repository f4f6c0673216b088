"""A slot process without Spark, and the TaskManager's end of its control channel."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from firesteel.checkpoint.assign import TaskRestore
from firesteel.core.ids import new_allocation_id
from firesteel.graph.specs import ChainSpec
from firesteel.protocol.deployment import Deployment, EdgeDescriptor, Placement, TaskDescriptor
from firesteel.protocol.slot_channel import FrameDecoder, encode

VERTICES = "abcdef"
_PROGRAM = """
import json, sys
from firesteel.protocol.fleet import SlotLaunch
from firesteel.runtime.slot.slot_main import slot_main
for outcome, text in slot_main(iter([SlotLaunch(**json.loads(sys.argv[1]))])):
    print("OUTCOME", outcome.value, text, flush=True)
"""


def vertex_id(number: int) -> str:
    """Of the n-th vertex of a test's job."""
    return VERTICES[number] * 32


class SlotProcess:
    """Runs ``slot_main`` in a process; speaks with it as a TaskManager does."""

    def __init__(
        self,
        directory: Path,
        *,
        accept: bool = True,
        executor_id: str = "0",
        environment: str = "",
        variables: Mapping[str, str] | None = None,
        calls: bool = True,
    ) -> None:
        self.directory = directory
        self.allocation_id = new_allocation_id()
        self.messages: list[tuple[dict[str, Any], bytes]] = []
        self._decoder = FrameDecoder("slot")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = directory / f"{self.allocation_id[:8]}.tm"
        self._listener.bind(str(path))
        self._listener.listen()
        launch = {
            "allocation_id": self.allocation_id,
            "taskmanager_id": "tm",
            "executor_id": executor_id,
            "control_socket": str(path),
        }
        env = {k: v for k, v in os.environ.items() if k != "SPARK_EXECUTOR_ID"}
        env.update(variables or {})
        if environment:
            env["SPARK_EXECUTOR_ID"] = environment
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(launch)], stdout=subprocess.PIPE, text=True, env=env
        )
        self.registration: dict[str, Any] = {}
        if (environment and environment != executor_id) or not calls:
            return
        self._listener.settimeout(100)
        self._socket, _ = self._listener.accept()
        self.registration = self.wait_for("register")[0]
        self.send(
            {"type": "accepted", "slot_index": 0, "taskmanager_id": "tm"}
            if accept
            else {"type": "rejected", "reason": "known already"}
        )

    # -- messages

    def send(self, message: dict[str, Any]) -> None:
        self._socket.sendall(encode(message))

    def pump(self, seconds: float) -> bool:
        """Take in what arrives within this time; False when the slot hung up."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(1 << 20)
        except TimeoutError:
            return True
        self.messages += self._decoder.feed(data)
        return bool(data)

    def wait_for(
        self, kind: str, accepts: Callable[[dict[str, Any]], bool] = lambda message: True, seconds: float = 100
    ) -> tuple[dict[str, Any], bytes]:
        """The first message of a kind, taken out of the list."""
        deadline = time.monotonic() + seconds
        while True:
            for position, (message, payload) in enumerate(self.messages):
                if message["type"] == kind and accepts(message):
                    del self.messages[position]
                    return message, payload
            left = deadline - time.monotonic()
            if left <= 0 or not self.pump(left):
                seen = [m for m, _ in self.messages if m["type"] != "log"]
                raise AssertionError(f"no {kind} in time; there were {seen}; {self.logs()}")

    def wait_for_state(self, state: str, execution_id: str | None = None, seconds: float = 100) -> dict[str, Any]:
        """The message that a task reached a state."""
        return self.wait_for(
            "task_state",
            lambda m: m["state"] == state and execution_id in (None, m["execution_id"]),
            seconds,
        )[0]

    def logs(self) -> str:
        """All log messages so far."""
        return "\n".join(m["message"] for m, _ in self.messages if m["type"] == "log")

    def printed(self, stream: str = "stdout") -> str:
        """What the program wrote so far."""
        texts = [p for m, p in self.messages if m["type"] == "stdout" and m["stream"] == stream]
        return b"".join(texts).decode()

    def collect(self, execution_id: str, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 5000) -> Any:
        request = len(self.messages) + offset * 1000 + 1
        self.send(
            {
                "type": "collect",
                "request_id": request,
                "execution_id": execution_id,
                "offset": offset,
                "max_bytes": max_bytes,
                "wait_ms": wait_ms,
            }
        )
        answer, payload = self.wait_for("collect_result", lambda m: m["request_id"] == request)
        return (pickle.loads(payload) if payload else []), answer

    def collect_all(self, execution_id: str) -> list[Any]:
        """Everything until the end."""
        values: list[Any] = []
        while True:
            results, answer = self.collect(execution_id, len(values))
            assert not answer["error"], answer
            values += results
            if answer["end"]:
                self.collect(execution_id, len(values), 0, 0)
                return values

    # -- deploying

    def blob(self, data: bytes) -> str:
        """Store a blob; its name."""
        name = hashlib.sha256(data).hexdigest()
        part = self.directory / f"{name}.{self.process.pid}"
        part.write_bytes(data)  # another slot may read it already
        part.replace(self.directory / name)
        return name

    def deploy(
        self,
        chains: list[ChainSpec],
        edges: list[tuple[int, int, str]] | None = None,
        *,
        parallelism: list[int] | None = None,
        subtasks: dict[int, list[int]] | None = None,
        placement: dict[str, list[str]] | None = None,
        peers: dict[str, Any] | None = None,
        needs_commit: bool = False,
        main: dict[str, dict[str, Any]] | None = None,
        python_path: list[str] | None = None,
        config: dict[str, str] | None = None,
        secret: str = "00ff" * 8,
        pickled: list[bytes] | None = None,
        restores: dict[int, TaskRestore] | None = None,
        attempt: int = 0,
    ) -> list[str]:
        """Deploy vertices; returns the execution ids in order."""
        widths = parallelism or [1] * len(chains)
        data = pickled or [cloudpickle.dumps(chain) for chain in chains]
        names = [self.blob(content) for content in data]
        mine = subtasks or {v: list(range(widths[v])) for v in range(len(chains))}
        tasks = [
            TaskDescriptor(
                execution_id=f"{vertex_id(v)}_{s}_{attempt}",
                vertex_id=vertex_id(v),
                vertex_name=f"vertex {v}",
                subtask=s,
                parallelism=widths[v],
                max_parallelism=128,
                attempt=attempt,
                chain=names[v],
                is_source=True,
                needs_commit=needs_commit,
                restore=restores[v].to_plain() if restores and v in restores else None,
            )
            for v in range(len(chains))
            for s in mine.get(v, [])
        ]
        placed = placement or {vertex_id(v): [self.allocation_id] * widths[v] for v in range(len(chains))}
        main_blob = self.blob(cloudpickle.dumps(main)) if main else None
        deployment = Deployment(
            job_id="1" * 32,
            job_name="test",
            job_attempt=0,
            salt="",
            secret=secret,
            tasks=tuple(tasks),
            edges=tuple(
                EdgeDescriptor(i, vertex_id(up), vertex_id(down), 0, kind, widths[up], widths[down], 128, 10)
                for i, (up, down, kind) in enumerate(edges or [])
            ),
            placement=Placement(
                {v: dict(enumerate(slots)) for v, slots in placed.items()},
                peers or {self.allocation_id: self.registration["data_address"]},
            ),
            blobs={name: str(self.directory / name) for name in [*names, *([main_blob] if main_blob else [])]},
            main_blob=main_blob,
            python_path=tuple(python_path or ()),
            config=config or {},
        )
        self.send({"type": "deploy", "deployment": deployment.to_plain()})
        return [task.execution_id for task in tasks]

    def give_splits(self, splits: list[dict[str, Any]], execution_id: str | None = None) -> None:
        """Answer the next request for splits; no more come."""
        request, _ = self.wait_for("request_splits", lambda m: execution_id in (None, m["execution_id"]))
        self.send({"type": "assign_splits", "execution_id": request["execution_id"], "splits": splits, "no_more": True})

    # -- end

    def release(self, seconds: float = 100) -> str:
        """Release the slot; returns what it said about its end."""
        self.send({"type": "release"})
        return self.outcome(seconds)

    def outcome(self, seconds: float = 100) -> str:
        """Wait for the end of the process."""
        text, _ = self.process.communicate(timeout=seconds)
        return next((line for line in text.splitlines() if line.startswith("OUTCOME")), text).strip()

    def hang_up(self) -> None:
        """Close the control channel, as when the TaskManager dies."""
        self._socket.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=100)
        if self.registration:
            self._socket.close()
        self._listener.close()
