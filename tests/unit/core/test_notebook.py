"""Whether the program runs in a notebook, and what cells show of errors."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.core import notebook
from firesteel.core.errors import ProgramError
from firesteel.core.notebook import Cell, InterruptedCellError, current_cell, kernel_shell
from tests.unit.core.notebook_kernel import in_notebook


def test_a_script_and_a_terminal_are_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert (kernel_shell(), current_cell(), notebook.cell_of_file("x.py")) == (None, None, None)
    in_terminal: Any = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", in_terminal)
    assert kernel_shell() is None
    notebook.show({"text/plain": "x"}, "id", update=False)


def test_a_cell_has_a_number_and_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = in_notebook(monkeypatch, "a-b-c")
    assert current_cell() == Cell(1, "a-b-c")
    shell.place = ""
    shell.next_cell()
    assert current_cell() == Cell(2, "")


def call(name: str, body: str, **names: Any) -> Any:
    """Runs a function of a module with this name."""
    namespace = {"__name__": name, **names}
    exec(f"def {name.replace('.', '_')}():\n    {body}", namespace)
    return namespace[name.replace(".", "_")]


def test_frames_of_ours_are_one_line_and_the_users_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ProgramError("no")

    inner = call("asyncio.base", "fail()", fail=fail)
    ours = call("firesteel.client.remote", "inner()", inner=inner)
    users = call("__main__", "ours()", ours=ours)
    outer = call("firesteel.datastream", "users()", users=users)
    cell = call("__main__", "outer()", outer=outer)
    shell = in_notebook(monkeypatch)
    with pytest.raises(ProgramError) as raised:
        cell()
    error = raised.value
    error.__cause__ = ZeroDivisionError("in a slot")
    lines = error._render_traceback_()
    assert shell.rendered[-1][-2:] == ["__main__", "__main__"], "what the user wrote"
    assert lines[-2:] == ["[... 4 frames of Firesteel]\n", "ProgramError: no"]
    assert shell.causes == [None], "the cause has no lines; the message tells it"
    assert isinstance(error.__cause__, ZeroDivisionError), "it is still there for the program"


def test_errors_in_a_terminals_ipython_are_shown_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = in_notebook(monkeypatch)
    in_terminal: Any = SimpleNamespace(InteractiveTB=shell.InteractiveTB)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: in_terminal)
    assert kernel_shell() is None
    assert ProgramError("no")._render_traceback_() == ["head", "ProgramError: no"]
    monkeypatch.delitem(sys.modules, "IPython")
    assert ProgramError("no")._render_traceback_()[-1].endswith("ProgramError: no\n")


def test_ctrl_c_keeps_its_name() -> None:
    assert InterruptedCellError.__name__ == "KeyboardInterrupt"
    assert isinstance(InterruptedCellError(), KeyboardInterrupt)
