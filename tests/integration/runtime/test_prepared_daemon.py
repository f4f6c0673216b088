"""The prepared daemon waits for the process that Spark starts, whoever else knocks."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TAKES_OVER = """
import sys
from firesteel.runtime.slot import prepared_daemon
prepared_daemon._PATIENCE_SECONDS = 0.3
door = prepared_daemon.listen(sys.argv[1])
print("listens", flush=True)
connection = prepared_daemon.take_over(door, sys.argv[1])
import os
print("taken over" if connection else "nobody came", os.environ.get("WHO"), flush=True)
"""
HANDS_OVER = """
from firesteel.runtime.slot import prepared_daemon
print(prepared_daemon.hand_over(), flush=True)
"""
LENGTH = struct.Struct(">I")


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        LENGTH.pack(0xFFFFFFFF) + b"x" * 100,
        LENGTH.pack(100) + b"half",
        LENGTH.pack(2) + b"{}",
        LENGTH.pack(2) + b"\xff\xff",
    ],
)
def test_strangers_are_sent_away(said: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "p"))
        waiting = subprocess.Popen(
            [sys.executable, "-c", TAKES_OVER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "listens\n"
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(path)
                if said:
                    socket.send_fds(stranger, [said], [0, 1, 2])
                stranger.settimeout(30)
                try:
                    assert stranger.recv(1) == b"", "the connection is closed"
                except ConnectionResetError:
                    pass
            environment = {**os.environ, "FIRESTEEL_PREPARED_DAEMON": path, "WHO": "Spark"}
            spark = subprocess.run(
                [sys.executable, "-c", HANDS_OVER], env=environment, capture_output=True, text=True, timeout=60
            )
            assert spark.stdout == "taken over Spark\n", "its streams are the daemon's now"
            waiting.communicate(timeout=60)
