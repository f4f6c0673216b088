"""``firesteel run`` and ``firesteel info``: verbs that run a program in this process."""

from __future__ import annotations

import argparse
import importlib.util
import json
import runpy
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, NoReturn

from firesteel.client.cli import exit_codes
from firesteel.client.cli.arguments import parser
from firesteel.client.cli.definitions import settings_of_info, settings_of_run
from firesteel.client.connections import keep_secret
from firesteel.client.console import Console
from firesteel.client.context import ProgramContext, running
from firesteel.client.planning import PlanOnly, plan_table
from firesteel.config import options
from firesteel.config.settings import Settings
from firesteel.core.errors import ConfigurationError, FiresteelError, JobError, RpcError
from firesteel.graph.plan import execution_plan

DEMO_PROGRAM: Final = "firesteel.examples.word_count"
_ANSWER_SECONDS: Final = 5.0


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Run a program, whose jobs go to the configured target (``firesteel run``)."""
    return run_program(parsed, console, program_context(parsed, console))


def program_context(parsed: argparse.Namespace, console: Console) -> ProgramContext:
    """The context of a program; with ``--json`` what is not the result has no place before it."""
    return ProgramContext(Console(out=sys.stderr) if parsed.json else console)


def run_program(parsed: argparse.Namespace, console: Console, context: ProgramContext) -> int:
    """Run a program as ``run`` does; the context has its jobs then, also where the program has left by ``sys.exit()``.

    Raises:
        ConfigurationError: there is no such program, or something is wrong with the settings.
        SystemExit: the program has ended so.
    """
    program = program_file(parsed)
    settings = settings_of_run(parsed)
    ends_jobs = settings.get(options.EXECUTION_ATTACHED) and settings.get(options.EXECUTION_SHUTDOWN_ON_ATTACHED_EXIT)
    with running(context), _terminated_in_order(ends_jobs):
        try:
            _execute(program, parsed, settings)
        except FiresteelError as error:
            console.note(f"firesteel run: {error}")
            return exit_codes.WRONG if isinstance(error, ConfigurationError) else exit_codes.FAILED
        except KeyboardInterrupt:
            console.note("firesteel run: interrupted")
            code = exit_codes.INTERRUPTED
        except Exception as error:  # the user's program
            console.note("".join(_of_program(error, program)).rstrip())
            code = exit_codes.FAILED
        else:
            return exit_codes.DONE
        finally:
            if ends_jobs:
                _cancel(context)
            if parsed.json:  # one line: the program may have written others
                jobs = {"jobs": context.submitted, "running": list(context.jobs)}
                console.say(json.dumps(jobs))
        _tell_of_running(context)
        return code


def demo(parsed: argparse.Namespace, console: Console) -> int:
    """Run the word count that is installed with Firesteel, in a cluster inside this process (``firesteel demo``)."""
    whole = parser().parse_args(["run", "-t", "local", "-pym", DEMO_PROGRAM, *parsed.paths])
    whole.definitions, whole.json = parsed.definitions, parsed.json
    return run(whole, console)


def info(parsed: argparse.Namespace, console: Console) -> int:
    """Show the plan of a program's first job without submitting it (``firesteel info``)."""
    plan = planned(parsed, console, settings_of_info(parsed))
    if plan is None:
        return exit_codes.FAILED
    console.say(execution_plan(plan.stream_graph) if parsed.json else plan_table(plan.job_graph))
    return exit_codes.DONE


def planned(parsed: argparse.Namespace, console: Console, settings: Settings) -> PlanOnly | None:
    """The plan of the program's first job; None = it has none, and the console shows why.

    Raises:
        FiresteelError: there is no such program, or it asks for what there is not.
    """
    program = program_file(parsed)
    with running(ProgramContext(console, plan_only=True)):
        try:
            _execute(program, parsed, settings)
        except PlanOnly as plan:
            return plan
        except FiresteelError:
            raise
        except Exception as error:  # the user's program
            console.note("".join(_of_program(error, program)).rstrip())
        else:
            console.note(f"firesteel {parsed.verb}: {parsed.program} executes no job")
    return None


def program_file(parsed: argparse.Namespace) -> Path:
    """The file of the program that a verb runs.

    Raises:
        ConfigurationError: there is no such program.
    """
    if parsed.as_module:
        return _module(parsed)
    program = Path(parsed.program)
    if not program.is_file():
        java_hint = "; Java programs don't run here" if program.suffix == ".jar" else ""
        raise ConfigurationError(f"{parsed.program!r} is not a file{java_hint}")
    if program.suffix == ".jar":
        raise ConfigurationError(f"{parsed.program!r}: Java programs don't run here; name a Python program")
    return program


def _module(parsed: argparse.Namespace) -> Path:
    """The file of the module that ``-pym`` names."""
    files = [Path(name.strip()) for name in (parsed.python_files or "").split(",") if name.strip()]
    path = [Path.cwd(), *(file.parent if file.suffix == ".py" else file for file in files)]
    sys.path[0:0] = [str(folder.resolve()) for folder in path]
    try:
        spec = importlib.util.find_spec(parsed.program)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{parsed.program}.__main__")
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"-pym {parsed.program}: {error}") from error
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ConfigurationError(f"-pym {parsed.program}: there is no such module in this directory or in -pyfs")
    return Path(spec.origin)


def _execute(program: Path, parsed: argparse.Namespace, settings: Settings) -> None:
    """Run the program as ``python program.py`` would."""
    keep_secret(settings)
    named = (settings.get(options.PYTHON_FILES) or "").split(",")
    paths = [Path(name.strip()).resolve() for name in named if name.strip()]
    files = [str(path.parent if path.suffix == ".py" else path) for path in paths]
    sys.argv = [str(program), *parsed.arguments]
    sys.path[0:0] = [str(program.resolve().parent), *files]
    if parsed.as_module:
        runpy.run_module(parsed.program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(program), run_name="__main__")


def _of_program(error: Exception, program: Path) -> list[str]:
    """The traceback, from the program's own first line on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename) != program:
        trace = trace.tb_next
    if trace is None and not isinstance(error, SyntaxError):  # of the program itself: it did not begin
        trace = error.__traceback__
    return traceback.format_exception(type(error), error, trace)


@contextmanager
def _terminated_in_order(cancels_jobs: bool) -> Iterator[None]:
    """Within this block SIGTERM unwinds the program, so that its jobs can be cancelled."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(exit_codes.TERMINATED)

    if not cancels_jobs:
        yield
        return
    former_handler = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former_handler)


def _cancel(context: ProgramContext) -> None:
    """Cancel the jobs that have not ended, as far as is known: their client ends."""
    while context.jobs:
        _, job = context.jobs.popitem()
        try:
            job.cancel().result(_ANSWER_SECONDS)
        except (RpcError, JobError, TimeoutError):
            continue


def _tell_of_running(context: ProgramContext) -> None:
    """Name the jobs that run on although the program ended early."""
    for job_id, job in context.jobs.items():
        try:
            ended = job.get_job_status().result(_ANSWER_SECONDS).is_globally_terminal_state()
        except (RpcError, JobError, TimeoutError):
            ended = False
        if not ended:
            context.console.note(f"Job {job_id} runs on; `firesteel cancel {job_id}` cancels it.")
