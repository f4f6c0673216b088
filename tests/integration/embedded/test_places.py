"""The same small program wherever people write programs; its classes live in ``__main__`` and in a module beside it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.programs import PROGRAM_RUNS, program, run_directories

BESIDE = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Weight:
    grams: int
"""

CLASSES = """
import pickle
import sys
from dataclasses import dataclass
from beside import Weight
from firesteel.common import Configuration
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.state import ValueStateDescriptor
from firesteel.common import Types


@dataclass(frozen=True)
class Order:
    customer: str
    weight: Weight

    def __add__(self, other):
        return Order(self.customer, Weight(self.weight.grams + other.weight.grams))


class Total(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        assert isinstance(value, Order) and type(value) is Order
        assert len(pickle.dumps(value)) < 150, len(pickle.dumps(value))
        seen = self.total.value()
        total = value if seen is None else seen + value
        self.total.update(total)
        yield total
"""

RUN = """
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({settings}))
orders = [Order("ab"[i % 2], Weight(i)) for i in range(100)]
stream = env.from_collection(orders).rebalance().map(lambda order: order)
last = {}
for order in stream.key_by(lambda order: order.customer).process(Total()).execute_and_collect():
    assert type(order) is Order
    last[order.customer] = max(order.weight.grams, last.get(order.customer, 0))
assert last == {"a": 2450, "b": 2500}, last
print("parallelism", env.get_parallelism(), "arguments", sys.argv[1:], "done", flush=True)
""".replace("{settings}", repr({"rest.port": "0", "firesteel.run.directory": str(PROGRAM_RUNS)}))

EDITED = """
class Marked:
    version = 1

    def __init__(self, number):
        self.number = number


def mark(number):
    return Marked(number), Marked.version


for result in env.from_collection([1]).map(mark).execute_and_collect():
    assert type(result[0]) is Marked and result[1] == 1


class Marked:
    version = 2

    def __init__(self, number):
        self.number = number


marks = env.from_collection([Marked(5)]).map(lambda marked: (marked.version, mark(marked.number)))
for result in marks.execute_and_collect():
    assert result[0] == 2 and result[1][1] == 2 and type(result[1][0]) is Marked, result
print("edited", flush=True)
"""

FAILS = """

def divide(i):
    return 1 // i


env.from_collection([1, 0]).map(divide).print()
env.execute("division")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "script.py").write_text(CLASSES + RUN + EDITED)
    yield tmp_path
    assert run_directories(PROGRAM_RUNS) == []


def test_a_script_that_python_runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with program(folder, str(folder / "script.py"), "x", cwd=elsewhere) as run:
        assert run.end() == 0, run.err
        assert "arguments ['x'] done\nedited\n" in run.out
        assert "Traceback" not in run.err


@pytest.mark.long  # as client/test_run.py
def test_a_script_that_the_command_runs(folder: Path) -> None:
    options = ["-p", "3", "-D", "taskmanager.numberOfTaskSlots=4"]
    (folder / "fails.py").write_text(CLASSES + RUN + EDITED + FAILS)
    with program(folder, "-m", "firesteel", "run", "-t", "local", *options, "fails.py", "--name", "y") as run:
        assert run.end() == 1, run.err
        assert "parallelism 3 arguments ['--name', 'y'] done\nedited\n" in run.out
        for words in ("ZeroDivisionError", "return 1 // i", "at the record 0"):
            assert words in run.err, run.err
        assert not re.search(r"py4j|java\.|org\.apache|firesteel/runtime", run.err), run.err


def cells(*parts: str) -> str:
    """As typed into a REPL: blocks end with an empty line, and hold none."""
    lines: list[str] = []
    for line in "\n".join(parts).splitlines():
        if line.strip():
            inside = line.startswith((" ", ")"))
            if (
                lines
                and not inside
                and lines[-1].startswith(" ")
                and not line.startswith(("else", "except", "finally"))
            ):
                lines.append("")
            lines.append(line)
    return "\n".join(lines) + "\n\n"


@pytest.mark.parametrize("how", ["-i", pytest.param("-", marks=pytest.mark.long)])
def test_the_plain_repl(folder: Path, how: str) -> None:
    text = cells(CLASSES, RUN, EDITED) if how == "-i" else CLASSES + RUN + EDITED
    with program(folder, how, stdin=text) as run:
        code = run.end()
        assert "arguments [] done\n" in run.out, run.err
        assert "edited\n" in run.out, run.err
        assert (code, "Error" in run.err) == (0, False), run.err


@pytest.mark.parametrize("mode", ["prepend", pytest.param("importlib", marks=pytest.mark.long)])
def test_a_test_under_pytest(mode: str, folder: Path) -> None:
    body = textwrap.indent(RUN, "    ")
    (folder / "test_orders.py").write_text(f"{CLASSES}\n\ndef test_totals():\n{body}")
    options = ["-q", "-p", "no:cacheprovider", "-W", "error", f"--import-mode={mode}", "--rootdir=."]
    path = {"PYTHONPATH": str(folder)} if mode == "importlib" else {}
    with program(folder, "-m", "pytest", *options, "test_orders.py", **path) as run:
        assert run.end() == 0, run.out + run.err
        assert "1 passed" in run.out
