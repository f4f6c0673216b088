"""The notebook in which the program runs, if it runs in one: its cells, and what they show.

IPython is not imported: a kernel of Jupyter has imported it before any cell runs.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any, Final, NamedTuple

_OURS: Final = "firesteel"
"""Frames of modules below this package are left out of tracebacks that cells show."""


class Cell(NamedTuple):
    """A run of a cell.

    Attributes:
        number: as in ``In[3]``.
        place: the id of the cell in the document; empty if the front end does not tell it.
    """

    number: int
    place: str


def kernel_shell() -> Any | None:
    """The shell of the kernel in which the program runs; None outside of notebooks, in a terminal's IPython too."""
    shell = _shell()
    return shell if hasattr(shell, "kernel") else None


def _shell() -> Any | None:
    """The shell of IPython that runs the program, in a notebook or in a terminal; None if none does."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_shell is None else get_shell()


def current_cell() -> Cell | None:
    """The cell that runs; None outside of notebooks."""
    shell = kernel_shell()
    if shell is None:
        return None
    try:
        place = str(shell.get_parent()["metadata"].get("cellId", ""))
    except (AttributeError, KeyError, TypeError, LookupError):
        place = ""
    # Its input is the last one in the history. ``execution_count`` is that of the next cell since IPython 9.
    return Cell(len(shell.history_manager.input_hist_parsed) - 1, place)


def cell_of_file(file_name: str) -> str | None:
    """The name of the cell whose code a kernel has compiled under this name of a file: ``Cell In[3]``."""
    shell = kernel_shell()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    parts = None if name_of is None else name_of(file_name)
    return None if parts is None else " ".join(parts)


def show(bundle: dict[str, str], display_id: str, *, update: bool) -> None:
    """Show something below the cell that runs, in place of what has the same id before.

    Args:
        bundle: the same for each MIME type.
        display_id: names the place below the cell.
        update: the place is there already.
    """
    shell = kernel_shell()
    if shell is not None:
        shell.display_pub.publish(data=bundle, metadata={}, transient={"display_id": display_id}, update=update)


class InterruptedCellError(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, while a job was waited for. It is called ``KeyboardInterrupt``."""

    def _render_traceback_(self) -> list[str]:
        """The traceback that a cell shows (the name is IPython's)."""
        return render_traceback(self)


InterruptedCellError.__name__ = InterruptedCellError.__qualname__ = "KeyboardInterrupt"


def render_traceback(error: BaseException) -> list[str]:
    """The traceback of an error as IPython shows it: frames of Firesteel and of what waits for it are one line."""
    shell = _shell()
    if shell is None:  # another tool that uses the method by IPython's name
        return traceback.format_exception(error)
    trace, hidden = _without_our_frames(error.__traceback__)
    cause, suppressed = error.__cause__, error.__suppress_context__
    try:
        if cause is not None and cause.__traceback__ is None:  # it was raised in a slot: the error's own text tells it
            error.__cause__ = None
            error.__suppress_context__ = True
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, trace)
    finally:
        error.__cause__, error.__suppress_context__ = cause, suppressed
    if hidden:
        noun = "frame" if hidden == 1 else "frames"
        lines.insert(len(lines) - 1, f"[... {hidden} {noun} of Firesteel]\n")
    return lines


def _without_our_frames(trace: TracebackType | None) -> tuple[TracebackType | None, int]:
    """A traceback up to the first call of ours, and how many frames were left out.

    What comes behind our frames is ours as well (a wait, an HTTP client), unless it is the user's code again.
    """
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    modules = [str(entry.tb_frame.f_globals.get("__name__", "")) for entry in frames]
    first = next((number for number, name in enumerate(modules) if name.partition(".")[0] == _OURS), len(frames))
    behind = zip(frames[first:], modules[first:], strict=True)
    shown = [*frames[:first], *(entry for entry, name in behind if name == "__main__")]
    shortened: TracebackType | None = None
    for entry in reversed(shown):
        shortened = TracebackType(shortened, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shortened, len(frames) - len(shown)
