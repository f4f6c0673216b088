"""``python -m benchmarks.observability_bench``: what metrics, traces and meters cost w2 and w2c.

Runs each workload with everything off and with everything on, in turns: Prometheus's reporter, read every five seconds,
metrics and traces over OTLP, both with checkpoints. What receives runs in a process of its own, takes and drops; its
processor time is part of the cost where all cores are in use. The cost is the median of those of two runs that followed
each other: a machine's speed changes by more than that within minutes. The goal: 3 % of the rate of w2, 2 % of that of
w2c::

    python -m benchmarks.observability_bench --runs 5
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

COUNTS: Final = {"w2": 20_000_000, "w2c": 300_000_000}
INTERVAL: Final = "5 s"
_FIRST_PORT, _PORTS = 29250, 8


def main() -> None:
    """Print a line of JSON for each run, and one for each workload."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*COUNTS, []], help="by default all")
    parser.add_argument("--runs", type=int, default=3, help="with each setting")
    parser.add_argument("--count", type=int, help="events")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve()
        return
    with receiver() as endpoint:
        for what in given.what or COUNTS:
            rates: dict[str, list[float]] = {"off": [], "on": []}
            received = 0
            for _ in range(given.runs):
                for state, found in rates.items():
                    options = on(endpoint) if state == "on" else {}
                    before = _received(endpoint)
                    result = _run(what, given.count or COUNTS[what], given.parallelism, options)
                    print(json.dumps({"run": what, "reporters": state, **result}), flush=True)
                    found.append(result["rate"])
                    received += _received(endpoint) - before if state == "on" else 0
            assert received, "nothing was received: this would measure nothing"
            off, with_all = (statistics.median(rates[state]) for state in ("off", "on"))
            costs = [
                round(100 * (1 - later / before), 1) for before, later in zip(rates["off"], rates["on"], strict=True)
            ]
            summary = {"what": what, "off": off, "on": with_all, "cost_percent": statistics.median(costs), "of": costs}
            print(json.dumps({**summary, "received_bytes": received}), flush=True)


def on(endpoint: str) -> dict[str, str]:
    """All reporters that there are."""
    return {
        "metrics.reporter.prom.factory.class": "prometheus",
        "metrics.reporter.prom.port": f"{_FIRST_PORT}-{_FIRST_PORT + _PORTS}",
        "metrics.reporter.otel.factory.class": "otel",
        "metrics.reporter.otel.exporter.endpoint": endpoint,
        "traces.reporter.otel.factory.class": "otel",
        "traces.reporter.otel.exporter.endpoint": endpoint,
    }


def _run(what: str, count: int, parallelism: int, options: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        both = {"execution.checkpointing.interval": INTERVAL, "execution.checkpointing.dir": f"file://{folder}"}
        words = [f"-D{key}={value}" for key, value in {**both, **options}.items()]
        command = [sys.executable, "-m", "benchmarks", what, "--count", str(count), "--parallelism", str(parallelism)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{what} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"run"')]
    return {key: lines[-1][key] for key in ("rate", "seconds", "cpu_s", "peak_pss_mb", "other_cores")}


@contextmanager
def receiver() -> Iterator[str]:
    """A process that takes OTLP, and reads /metrics; gives its address."""
    command = [sys.executable, "-m", "benchmarks.observability_bench", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def _received(endpoint: str) -> int:
    with urllib.request.urlopen(endpoint, timeout=10) as answer:
        return int(answer.read())


def _serve() -> None:
    received = 0
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal received
            length = int(self.headers["Content-Length"])
            self.rfile.read(length)
            with lock:
                received += length
            self._answer(b"")

        def do_GET(self) -> None:
            self._answer(str(received).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    def scrape() -> None:
        wake = threading.Event()
        while not wake.wait(5.0):
            for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS):
                with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    answer.read()

    threading.Thread(target=scrape, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
