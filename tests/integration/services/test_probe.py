"""The health check of containers, run as docker-compose.yml runs it."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.service import probe


class Answers(http.server.BaseHTTPRequestHandler):
    """Ready under one path."""

    def do_GET(self) -> None:  # its base class finds it by this name
        self.send_response(200 if self.path == "/ready" else 503)
        self.end_headers()
        self.wfile.write(b'{"reason": "no leader yet"}')

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def probed(*arguments: str) -> tuple[int, str]:
    """Exit code and what it said."""
    command = [sys.executable, "-I", "-S", probe.__file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def test_only_an_address_that_answers_200_is_well(address: str) -> None:
    assert probed(f"http://{address}/ready") == (0, "")
    code, said = probed(f"http://{address}/else")
    assert code == 1
    assert said == f'http://{address}/else: 503 Service Unavailable {{"reason": "no leader yet"}}\n'


def test_nobody_there_is_not_well(address: str) -> None:
    code, said = probed("http://127.0.0.1:1/ready")
    assert code == 1
    assert "refused" in said


@pytest.mark.parametrize(("age", "looks", "code"), [(30.0, 1, 0), (121.0, 3, 1)])
def test_the_probe_goes_on_looking_in_a_container_that_is_up_for_long(
    address: str, age: float, looks: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["ready", "ready", "else"])
    paths = []

    def look(address: str, netloc: str, path: str) -> int:
        paths.append(path)
        return real(address, netloc, next(answers))

    real = probe.look
    monkeypatch.setattr(probe, "look", look)
    monkeypatch.setattr(probe, "age_of_container", lambda: age)
    monkeypatch.setattr(probe, "_INTERVAL", 0.01)
    assert probe.main([f"http://{address}/ready", "20"]) == code
    assert len(paths) == looks


def test_the_age_is_that_of_the_first_process() -> None:
    assert 0 < probe.age_of_container() <= float(Path("/proc/uptime").read_text().split()[0])


@pytest.mark.parametrize("arguments", [(), ("https://127.0.0.1:1/",), ("http://127.0.0.1/",), ("http://a:1/", "c")])
def test_another_call_tells_how_to(arguments: tuple[str, ...]) -> None:
    code, said = probed(*arguments)
    assert code == 2
    assert said.startswith("usage: ")
