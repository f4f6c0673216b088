"""A slot process for tests: speaks its end of the control channel and behaves as its arguments say.

Behaviours: ``ok`` (default: runs tasks until they are cancelled or released), ``deaf`` (ignores cancel and release),
``mute`` (never registers), ``quick`` (tasks finish at once), ``source`` (asks for splits, then finishes),
``files`` (leaves a file), ``hog`` (takes 300 MiB with its first task), ``malformed`` (sends a message without its
fields).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from typing import Any

from firesteel.protocol.slot_channel import PROTOCOL_VERSION, FrameDecoder, encode


def main(path: str, allocation: str, executor: str, *behaviour: str) -> None:
    """Until released or alone."""
    if "mute" in behaviour:
        time.sleep(60)
        return
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)

    def send(kind: str, payload: bytes = b"", **fields: Any) -> None:
        connection.sendall(encode({"type": kind, **fields}, payload))

    def state(execution: str, name: str, **fields: Any) -> None:
        send("task_state", execution_id=execution, state=name, error=None, metrics={"numRecordsIn": 1}, **fields)

    send(
        "register", version=PROTOCOL_VERSION, allocation_id=allocation, pid=os.getpid(), spark_attempt=0,
        executor_id=executor, data_address={"unix": "/nowhere"},
    )  # fmt: skip
    if "malformed" in behaviour:
        send("collect_result")
    decoder, tasks = FrameDecoder("TaskManager"), []
    while data := connection.recv(65536):
        for message, _ in decoder.feed(data):
            match message["type"]:
                case "rejected":
                    return
                case "deploy":
                    deployment = message["deployment"]
                    blobs = {sha: open(file, "rb").read() for sha, file in deployment["blobs"].items()}  # noqa: SIM115
                    tasks = [t["execution_id"] for t in deployment["tasks"]]
                    send("log", level="INFO", logger="slot.test", message=f"{len(blobs)} blobs", execution_id=None)
                    send("stdout", b"blobs " + b" ".join(sorted(blobs.values())) + b"\n", stream="stdout")
                    if "tells" in behaviour:
                        send("stdout", f"the secret is {deployment['secret']}\n".encode(), stream="stdout")
                        send("stdout", f"managed: {deployment['managed_memory']}\n".encode(), stream="stdout")
                        for local in deployment["local_directories"]:
                            os.makedirs(os.path.join(local, "a task"))
                            send("stdout", f"local: {local}\n".encode(), stream="stdout")
                    for execution in tasks:
                        state(execution, "INITIALIZING")
                        state(execution, "RUNNING")
                        if "quick" in behaviour:
                            send("stdout", "fa\u00e7ade done\n".encode(), stream="stdout")
                            state(execution, "FINISHED")
                        if "source" in behaviour:
                            send("request_splits", execution_id=execution)
                        if "hog" in behaviour:
                            hoard = [os.urandom(1 << 20) for _ in range(300)]
                            state(execution, "RUNNING", hoarded=len(hoard))
                        if "files" in behaviour:
                            open(f"{path}.left", "w").close()
                            send("temporary_files", add=[f"{path}.left"], remove=[])
                case "assign_splits":
                    send("metrics", tasks={message["execution_id"]: {"numRecordsIn": len(message["splits"])}})
                    if message["no_more"]:
                        send("end_of_data", execution_id=message["execution_id"])
                case "checkpoint_complete":
                    for execution in message["execution_ids"]:
                        state(execution, "FINISHED")
                case "collect":
                    fields = {"request_id": message["request_id"], "offset": message["offset"], "count": 2}
                    send("collect_result", b"results", **fields, end=True, error=None)
                case "ping":
                    send("pong", nonce=message["nonce"])
                case "cancel" if "deaf" not in behaviour:
                    for execution in message["execution_ids"]:
                        state(execution, "CANCELED")
                case "release" if "deaf" not in behaviour:
                    return


if __name__ == "__main__":
    main(*sys.argv[1:])
