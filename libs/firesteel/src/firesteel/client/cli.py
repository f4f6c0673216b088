"""The ``firesteel`` command."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from firesteel import __version__
from firesteel.client.definitions import hand_on
from firesteel.config.load import parse_definitions
from firesteel.core.errors import ConfigurationError, FiresteelError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="firesteel", description="Stateful streaming in Python, on Spark.")
    parser.add_argument("--version", action="version", version=f"firesteel {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", help="run a program in the embedded cluster")
    run.add_argument("-p", "--parallelism", type=int, help="default parallelism of the program")
    run.add_argument("-D", dest="definitions", action="append", default=[], metavar="KEY=VALUE", help="set an option")
    run.add_argument("program", help="path of a Python program")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="handed to the program")
    parsed = parser.parse_args(arguments)
    try:
        return _run(parsed)
    except ConfigurationError as error:
        print(f"firesteel: {error}", file=sys.stderr)
        return 2


def _run(parsed: argparse.Namespace) -> int:
    program = Path(parsed.program)
    if not program.is_file():
        print(f"firesteel run: {parsed.program!r} is not a file", file=sys.stderr)
        return 2
    definitions = list(parsed.definitions)
    if parsed.parallelism is not None:
        definitions.append(f"parallelism.default={parsed.parallelism}")
    parse_definitions(definitions)
    hand_on(definitions)
    sys.argv = [str(program), *parsed.arguments]
    sys.path[0:0] = [str(program.resolve().parent)]
    try:
        runpy.run_path(str(program), run_name="__main__")
    except FiresteelError as error:
        _report(error)
        return 1
    except KeyboardInterrupt:
        print("firesteel: interrupted", file=sys.stderr)
        return 130
    return 0


def _report(error: FiresteelError) -> None:
    print(f"firesteel: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
