"""Programs in the cells of a real notebook kernel."""

from __future__ import annotations

import ast
import csv
import datetime
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.core import process
from firesteel.core.run_directory import RunDirectory
from tests.integration.embedded.notebook import Notebook, notebook
from tests.integration.embedded.programs import PROGRAM_RUNS, family, run_directories, until

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "notebooks"
FIRST_CELL = """
import time
from dataclasses import dataclass
from firesteel.common import Configuration, Types, WatermarkStrategy
from firesteel.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from firesteel.datastream.connectors.data_generator import DataGeneratorSource, RateLimiterStrategy
from firesteel.datastream.state import ValueStateDescriptor

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({settings}))
env.set_parallelism(2)


def endless():
    source = DataGeneratorSource(lambda i: i, None, RateLimiterStrategy.per_second(1_000))
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
""".replace("{settings}", repr({"rest.port": "0", "firesteel.run.directory": str(PROGRAM_RUNS)}))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel that all tests share which leave it in order."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "beside.py").write_text("class Rate:\n    def __init__(self, percent):\n        self.percent = percent\n")
    with notebook(folder) as book:
        first = book.run(FIRST_CELL)
        assert first.error is None, first
        assert book.run("sorted(env.from_sequence(1, 4).map(str).execute_and_collect())").error is None
        yield book
        started = with_a_running_job(book)
        book.shut_down()
        assert process.wait_gone(started, timeout=100) == [], "a kernel that was shut down left processes"
    assert run_directories(PROGRAM_RUNS) == []


def with_a_running_job(book: Notebook) -> list[process.ProcessId]:
    """Starts a job that does not end; all processes below the kernel."""
    book.begin("endless().filter(lambda i: i % 1_000 == 7).print(); job = env.execute_async(); time.sleep(600)")
    assert "> 7\n" in book.end(until="> 7\n").out
    started = process.descendants(book.pid)
    kinds = family(book.pid)
    assert (len(kinds["jvm"]), len(kinds["slot"])) == (1, 2), kinds
    book.interrupt()
    assert book.end().error == "KeyboardInterrupt"
    return started


def printed(kernel: Notebook, source: str) -> str:
    """The output of a cell that ends well."""
    cell = kernel.run(source)
    assert (cell.error, cell.err) == (None, ""), cell
    return cell.out


def test_classes_and_functions_of_cells(kernel: Notebook) -> None:
    define = """
from beside import Rate

RATE = Rate({percent})


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int

    def taxed(self):
        return self.amount * RATE.percent // 100


class Total(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        assert type(value) is Order
        before = self.total.value()
        total = Order(value.customer, value.taxed() + (before.amount if before else 0))
        self.total.update(total)
        yield total


def customer(order):
    return order.customer
"""
    run = """
orders = [Order("ab"[i % 2], i) for i in range(100)]
last = {}
for order in env.from_collection(orders).rebalance().key_by(customer).process(Total()).execute_and_collect():
    assert type(order) is Order
    last[order.customer] = max(order.amount, last.get(order.customer, 0))
print(last)
"""
    assert printed(kernel, define.replace("{percent}", "200")) == ""
    assert printed(kernel, run) == "{'a': 4900, 'b': 5000}\n"
    assert printed(kernel, define.replace("{percent}", "300")) == ""  # the cell is edited and run again
    assert printed(kernel, run) == "{'a': 7350, 'b': 7500}\n"
    assert printed(kernel, "def customer(order):\n    return 'all'") == ""
    assert printed(kernel, run.replace("range(100)", "range(4)")).count("18") == 1


def test_a_cell_that_awaits(kernel: Notebook) -> None:
    source = """
import asyncio

async def doubled(n):
    await asyncio.sleep(0)
    return sorted(env.from_sequence(1, n).map(lambda i: i * 2).execute_and_collect())

print(await asyncio.gather(doubled(2), doubled(3)))
"""
    assert printed(kernel, source) == "[[2, 4], [2, 4, 6]]\n"
    awaited = "env.from_sequence(1, 2).filter(lambda i: False).print()\nresult = await env.execute_async('awaited')"
    text = printed(kernel, awaited + ".get_job_execution_result(); print(type(result).__name__)")
    assert text == "JobExecutionResult\n"


def test_what_a_job_prints_stands_below_its_own_cell(kernel: Notebook) -> None:
    for word in ("one", "two"):
        source = f"env.from_collection(['{word}']).print(); env.execute(); time.sleep(0)"
        assert printed(kernel, source) in (f"1> {word}\n", f"2> {word}\n")


def test_a_function_that_raises_is_shown_with_its_line(kernel: Notebook) -> None:
    source = "def share(i):\n    return 12 // i\n\nlist(env.from_collection([3, 0]).map(share).execute_and_collect())"
    cell = kernel.run(source)
    assert cell.error == "UserFunctionError"
    source_lines = (", line 2, in share\n    return 12 // i\n", "----> 4 list(env.")
    for words in ("ZeroDivisionError", "at the record 0", *source_lines):
        assert words in cell.report, cell.report
    assert "\n  Cell In[" in cell.report, "the cell of the function, and not the file that the kernel makes up"
    assert "frames of Firesteel]" in cell.report
    assert "closeable_iterator" not in cell.report
    whole = kernel.run("import sys, traceback; traceback.print_exception(sys.last_value)")
    assert "closeable_iterator" in whole.err


def test_a_cell_shows_environments_streams_and_results(kernel: Notebook) -> None:
    assert "a cluster inside this process" in kernel.run("env").shown[0]
    assert "<svg" in kernel.run("lines = env.from_collection(['<b>', 'c']).map(lambda s: s * 2); lines").shown[0]
    cell = kernel.run("results = lines.execute_and_collect(); results")
    assert "&lt;b&gt;&lt;b&gt;" in cell.shown[-1], cell
    assert "2 results" in cell.shown[-1]
    assert printed(kernel, "print(sorted(results))") == "['<b><b>', 'cc']\n"


def test_a_cell_that_is_run_again_is_told_who_has_its_slots(kernel: Notebook) -> None:
    cell = """
from firesteel.core.machine import usable_cores

env.set_parallelism(max(2, usable_cores()))
endless().map(lambda i: i).filter(lambda i: i == 5).print()
job = env.execute_async("again")
"""
    assert kernel.run(cell).error is None
    again = kernel.run(cell)
    assert again.error == "NoResourceAvailableError", again
    assert "job 'again'" in again.report
    assert "`env.cancel_jobs()`" in again.report
    assert "RUNNING for" in kernel.run("time.sleep(1); job").shown[0]
    way_out = kernel.run("env.cancel_jobs()\n" + cell + "\nprint(len(env.cancel_jobs())); env.set_parallelism(2)")
    assert (way_out.error, way_out.out.splitlines()[-1]) == (None, "1"), way_out


def test_progress_is_shown_in_place(kernel: Notebook) -> None:
    source = """
source = DataGeneratorSource(lambda i: i, 2_500, RateLimiterStrategy.per_second(1_000))
counted = env.from_source(source, WatermarkStrategy.no_watermarks(), "counted").filter(lambda i: i < 0)
"""
    run = kernel.run(source + "counted.print(); env.execute('slow'); None")
    assert len(run.shown) > 2, run
    assert "slow: FINISHED  records in 2,500 out 2,500" in run.shown[-1]
    collected = kernel.run(source + "print(list(counted.execute_and_collect('read')))")
    assert collected.out == "[]\n"
    assert "read: FINISHED  records in 2,500" in collected.shown[-1], collected


def run_example(kernel: Notebook, name: str) -> list[list[str]]:
    """Runs a notebook of ``examples/notebooks`` in its folder; what each of its cells shows."""
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    shown: list[list[str]] = []
    assert kernel.run(f"import os; folder_before = os.getcwd(); os.chdir({str(EXAMPLES)!r})").error is None
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None), "outputs in the repository are old ones"
        run = kernel.run("".join(cell["source"]))
        assert run.error is None, run
        shown.append(run.shown)
    assert kernel.run("os.chdir(folder_before)\n" + FIRST_CELL).error is None
    return shown


def result(shown: list[str]) -> Any:
    """The value in the last line of a cell, which is a literal."""
    return ast.literal_eval(shown[-1])


def test_the_notebook_of_first_steps(kernel: Notebook) -> None:
    outputs = run_example(kernel, "first_steps")
    text = "the cluster lives as long as the kernel the kernel ends and the cluster ends"
    assert result(outputs[3]) == Counter(text.split())
    assert result(outputs[5]) == ["FIRE!", "STEEL!"]
    assert "RUNNING for" in outputs[7][-1]
    assert "JobID(" in outputs[8][-1]


def flights() -> list[dict[str, str]]:
    with (EXAMPLES.parent / "data" / "flights.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_notebook_of_flight_delays(kernel: Notebook) -> None:
    windows: dict[tuple[int, str], list[int]] = {}
    for flight in flights():
        if flight["dep_delay"] == "NA" or int(flight["dep_delay"]) >= 12 * 60:
            continue
        hour = datetime.datetime.fromisoformat(flight["time_hour"])
        minutes = int(hour.timestamp()) // 60 + int(flight["minute"])
        windows.setdefault((minutes // 180, flight["carrier"]), []).append(int(flight["dep_delay"]))
    large = [(round(sum(delays) / len(delays), 1), len(delays)) for delays in windows.values() if len(delays) >= 10]
    outputs = run_example(kernel, "flight_delays")
    worst = result(outputs[-1])
    assert [(mean, count) for _, _, count, mean in worst] == sorted(large, key=lambda window: -window[0])[:5]
    assert f"{len(windows)} results" in outputs[-2][-1]


def test_the_notebook_of_csv_to_parquet(kernel: Notebook) -> None:
    distances: dict[str, list[int]] = {}
    for flight in flights():
        if int(flight["distance"]) > 1_000:
            distances.setdefault(flight["carrier"], []).append(int(flight["distance"]))
    outputs = run_example(kernel, "csv_to_parquet")
    assert result(outputs[-3])[0] == sum(map(len, distances.values()))
    means = sorted((sum(of_pair) / len(of_pair) for of_pair in distances.values()), reverse=True)
    assert [row["distance_mean"] for row in result(outputs[-2])] == pytest.approx(means[:3])


@pytest.mark.parametrize(
    "source",
    [
        "endless().filter(lambda i: i % 1_000 == 5).print(); env.execute()",
        "for number in endless().execute_and_collect():\n    if number == 5: print('> 5', flush=True)",
        "for number in endless().execute_and_collect():\n    if number == 5: print('> 5', flush=True); time.sleep(600)",
    ],
    ids=["executing", "pulling", "sleeping"],
)
def test_the_stop_button_cancels_the_running_job(kernel: Notebook, source: str) -> None:
    until(lambda: family(kernel.pid)["slot"] == [], "the end of an earlier job's slots")
    kernel.begin(source)
    assert "> 5\n" in kernel.end(until="> 5\n").out
    (jvm,) = family(kernel.pid)["jvm"]
    slots = family(kernel.pid)["slot"]
    kernel.interrupt()
    cell = kernel.end()  # IPython can't show every interrupted line, and tells it in plain text then
    assert "KeyboardInterrupt" in (cell.error or cell.err), cell
    assert process.wait_gone(slots, timeout=100) == []
    assert printed(kernel, "print(len(list(env.from_sequence(1, 10).execute_and_collect())))") == "10\n"
    assert family(kernel.pid)["jvm"] == [jvm]


def test_a_kernel_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    others = run_directories(PROGRAM_RUNS)
    with notebook(tmp_path) as book:
        assert book.run(FIRST_CELL).error is None
        started = with_a_running_job(book)
        os.kill(book.pid, signal.SIGKILL)
        assert process.wait_gone(started, timeout=100) == []
        RunDirectory.create(PROGRAM_RUNS).remove()  # whoever comes next removes what the dead has left
        until(lambda: run_directories(PROGRAM_RUNS) == others, "its run directory being removed")
