"""``python -m firesteel.client.program_process``: runs a program for the Dispatcher, or plans its first job.

The order comes as one line of JSON on standard input; what became of it is written as lines of JSON to the file that
the order names: a job for each one that was submitted, the plan, or the error.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from firesteel.client.connections import keep_secret
from firesteel.client.console import Console
from firesteel.client.context import ProgramContext, running
from firesteel.client.planning import PlanOnly
from firesteel.config import options
from firesteel.config.definitions import hand_on
from firesteel.config.load import load_settings
from firesteel.core.errors import FiresteelError, class_name
from firesteel.core.ids import derived_job_ids
from firesteel.core.process import die_with_parent
from firesteel.core.text_output import escape_missing_characters
from firesteel.graph.plan import job_plan


class _Tells(Console):
    """Writes down which jobs were submitted."""

    def __init__(self, path: Path, context: list[ProgramContext]) -> None:
        super().__init__()
        self._path, self._context, self._told = path, context, set[str]()

    def say(self, text: str) -> None:
        """A line of standard output."""
        super().say(text)
        for job_id in self._context[0].jobs if self._context else ():
            if job_id not in self._told:
                self._told.add(job_id)
                tell(self._path, {"job": job_id})


def tell(path: Path, line: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> int:
    """Carry out the order on standard input; returns the exit code."""
    escape_missing_characters()
    order = json.loads(sys.stdin.readline())
    die_with_parent(order["parent"])
    signal.signal(signal.SIGTERM, _leave)
    answer, program = Path(order["answer"]), Path(order["program"])
    contexts: list[ProgramContext] = []
    console = _Tells(answer, contexts)
    context = ProgramContext(
        console,
        plan_only=order["plan_only"],
        job_ids=_job_ids(order),
        is_restarted=order["is_restarted"],
        shows_progress=False,
    )
    contexts.append(context)
    try:
        definitions = [f"{key}={value}" for key, value in order["settings"].items()]
        settings = load_settings(definitions=definitions)
        settings.check()
        hand_on(definitions)
        keep_secret(settings)
        files = [Path(name) for name in (settings.get(options.PYTHON_FILES) or "").split(",") if name]
        sys.path[0:0] = [str(file.parent if file.suffix == ".py" else file) for file in files]
        with running(context):
            _execute(program, order["entry"], order["arguments"])
    except PlanOnly as plan:
        tell(answer, {"plan": job_plan(plan.job_graph)})
        return 0
    except FiresteelError as error:
        tell(answer, {"error": str(error), "class": class_name(error)})
        return 1
    except SystemExit as error:
        if error.code not in (None, 0):
            tell(answer, {"error": f"the program ended with {error.code!r}", "class": "SystemExit"})
            return error.code if isinstance(error.code, int) and 0 < error.code < 256 else 1
    except BaseException as error:  # the user's program
        trace = error.__traceback__
        while trace is not None and program.name not in trace.tb_frame.f_code.co_filename:
            trace = trace.tb_next
        lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
        tell(answer, {"error": "".join(lines).rstrip(), "class": class_name(error)})
        return 1
    finally:
        sys.stdout.flush()
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM unwinds the program, as the end of it does."""
    raise SystemExit(128 + number)


def _job_ids(order: dict[str, Any]) -> Iterator[str]:
    if order["is_application"]:
        yield from derived_job_ids(order["job_id"])
    elif order["job_id"] is not None:
        yield order["job_id"]


def _execute(program: Path, entry: str | None, arguments: list[str]) -> None:
    sys.argv = [str(program), *arguments]
    if program.suffix == ".py":
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")
        return
    sys.path.insert(0, str(program))
    if entry is None:
        runpy.run_path(str(program), run_name="__main__")
        return
    module, _, function = entry.partition(":")
    if function:
        getattr(__import__(module, fromlist=[function]), function)()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main())
