"""Programs of their own process: how they end, by whose hand, and what stays."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from firesteel.core import process
from firesteel.core.run_directory import RunDirectory
from tests.integration.embedded.programs import PROGRAM_RUNS, family, program, run_directories

SETTINGS = {
    "rest.port": "0",
    "firesteel.run.directory": str(PROGRAM_RUNS),
    "taskmanager.numberOfTaskSlots": "4",  # for two jobs
}
HEAD = """
import os, signal, sys, time
from firesteel.common import Configuration, WatermarkStrategy
from firesteel.datastream import StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({settings}))
env.set_parallelism(2)
""".replace("{settings}", repr(SETTINGS))
ENDLESS = """
source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
numbers.rebalance().filter(lambda i: i == 1000).print()
"""
FAILING = """
job = env.execute_async()
sys.stdin.readline()


def divide(i):
    return 1 // i


env.from_collection([1, 0]).map(divide).print()
env.execute('division')
"""


@pytest.mark.parametrize(
    "how",
    [
        "kill -9",
        *(pytest.param(ending, marks=pytest.mark.long) for ending in ("end", "ctrl-c", "terminate", "exception")),
    ],
)
def test_a_client_that_ends_leaves_nothing(how: str, tmp_path: Path) -> None:
    last = {"exception": FAILING, "end": "job = env.execute_async(); sys.stdin.readline()"}.get(how, "env.execute()")
    (tmp_path / "script.py").write_text(HEAD + ENDLESS + last)
    with program(tmp_path, "script.py", stdin="") as run:
        assert run.line() in ("1> 1000", "2> 1000")
        started = process.descendants(run.pid)
        kinds = family(run.pid)
        assert (len(kinds["jvm"]), len(kinds["slot"])) == (1, 2), kinds
        (directory,) = run_directories(PROGRAM_RUNS)
        match how:
            case "kill -9":
                os.kill(run.pid, signal.SIGKILL)
            case "ctrl-c":
                os.killpg(run.pid, signal.SIGINT)
            case "terminate":
                os.kill(run.pid, signal.SIGTERM)
        code = run.end()
        assert process.wait_gone(started, timeout=100) == []
        match how:
            case "kill -9":
                assert code == -signal.SIGKILL
            case "ctrl-c":
                assert code in (130, 1, -signal.SIGINT)
                assert run.err.count("Traceback") <= 1, run.err
                assert "KeyboardInterrupt" in run.err
            case "terminate":
                assert code in (-signal.SIGTERM, 143)
            case "exception":
                assert code == 1
                for words in ("ZeroDivisionError", "return 1 // i", "at the record 0"):
                    assert words in run.err, run.err
                assert not re.search(r"java\.|org\.apache|firesteel/runtime|firesteel/rpc", run.err), run.err
            case _:
                assert (code, run.err) == (0, "")
        assert "py4j" not in run.err.lower(), run.err
        if directory.exists():
            assert how in ("kill -9", "terminate")
            RunDirectory.create(PROGRAM_RUNS).remove()
        assert run_directories(PROGRAM_RUNS) == []


HOLD = """
import ctypes, os
from firesteel.datastream import MapFunction

SECONDS = {seconds}


def hold():
    ctypes.PyDLL(None).usleep(SECONDS * 1_000_000)  # PyDLL: the call keeps the GIL


class Held(MapFunction):
    def open(self, runtime_context):
        if runtime_context.get_index_of_this_subtask() == 0:
            hold()  # before the slots are connected

    def map(self, value):
        before = os.getpid()
        if value == 5:
            hold()
        return before


numbers = env.from_sequence(1, 3000).rebalance().map(lambda i: time.sleep(0.002) or i)
with numbers.execute_and_collect("in the client") as results:
    next(results)
    began = time.monotonic()
    hold()
    assert time.monotonic() - began >= SECONDS
    print("client", len(list(results)), flush=True)
began = time.monotonic()
slots = list(env.from_sequence(1, 100).rebalance().map(Held()).execute_and_collect("in a slot"))
assert time.monotonic() - began >= SECONDS
print("slot", len(slots), len(set(slots)), flush=True)
"""


@pytest.mark.parametrize(
    ("seconds", "settings"),
    [
        pytest.param(5, {"heartbeat.interval": "1 s", "heartbeat.timeout": "4 s"}, id="short heartbeats"),
        pytest.param(61, {}, id="a minute", marks=[pytest.mark.long, pytest.mark.timeout(500)]),
    ],
)
def test_a_gil_that_is_held_longer_than_heartbeats_wait_fails_no_job(
    seconds: int, settings: dict[str, str], tmp_path: Path
) -> None:
    configure = f"env.configure(Configuration.from_dict({settings!r}))\n"
    (tmp_path / "script.py").write_text(HEAD + configure + HOLD.replace("{seconds}", str(seconds)))
    with program(tmp_path, "script.py") as run:
        code = run.end(140 + 4 * seconds)
        assert (code, run.out) == (0, "client 2999\nslot 100 2\n"), run.err


RESTARTED = """
SEEN = set()


def first_time(x):
    known = x in SEEN
    SEEN.add(x)
    return not known


def divide(x):
    if x == 0 and not os.path.exists("failed"):
        open("failed", "w").close()
        return 1 / x
    return -x


settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "200 ms"}
env.configure(Configuration.from_dict(settings))
env.set_parallelism(1).enable_checkpointing(60_000)
env.from_collection([1, 2, 0]).filter(first_time).map(divide).name("divide").print()
env.execute("x")
needless = {"numpy", "pyarrow", "pandas", "unittest"} & sys.modules.keys()
assert not needless, f"a program without columns has loaded them: {needless}"
"""


def test_a_plain_script_shows_once_why_its_job_is_restarted_and_its_globals_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HEAD + RESTARTED)
    with program(tmp_path, "script.py") as script:
        assert script.end() == 0, script.err
    (line,) = [line for line in script.err.splitlines() if "restart 1 in 0.2 s" in line]
    assert "'divide'" in line
    assert "ZeroDivisionError: division by zero at the record 0" in line
    assert script.err.count("    return 1 / x") == 1
    assert script.out.split()[-3:] == ["-1", "-2", "0"], "records that come again were seen before"
