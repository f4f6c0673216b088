"""One process that runs the programs of pages and examples, so that one embedded cluster serves them all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import leaks

RUNNER = Path(__file__).with_name("runner.py")
FIRST = """
from firesteel.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(4)
print(sorted(env.from_sequence(1, 8).map(str).execute_and_collect()))
"""
RunProgram = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="package")
def run_together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunProgram]:
    """Runs a program in the process that all share: ``run_together(path, *arguments)``; it does not end with it."""
    before = leaks.snapshot()
    home = tmp_path_factory.mktemp("programs")
    process = subprocess.Popen(
        [sys.executable, str(RUNNER)], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(path: Path, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        files = {name: str(home / name) for name in ("out", "err")}
        task = {"path": str(path), "arguments": arguments, "folder": str(folder or path.parent), **files}
        stdin.write(json.dumps(task) + "\n")
        stdin.flush()
        code = stdout.readline()
        out, err = (Path(file).read_text(encoding="utf-8") for file in files.values())
        assert code, f"{path} ended the process that runs the programs:\n{err}"
        return subprocess.CompletedProcess([str(path), *arguments], int(code), out, err)

    first = home / "first.py"
    first.write_text(FIRST, encoding="utf-8")
    process_of_first = run(first)
    assert process_of_first.returncode == 0, process_of_first.stderr
    yield run
    stdin.close()
    assert process.wait(100) == 0
    stdout.close()
    if left := leaks.leaks_since(before):
        pytest.fail("the programs left behind:\n  " + "\n  ".join(left), pytrace=False)
