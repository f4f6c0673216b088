"""The list of verbs and options in docs/cli.md, from the parser: ``python -m firesteel.client.cli.reference FILE``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from firesteel.client.cli.arguments import parser

BEGIN: Final = "<!-- made by firesteel.client.cli.reference: begin -->\n"
END: Final = "<!-- end -->\n"


def page(text: str) -> str:
    """The page with the list of now between its marks.

    Raises:
        ValueError: it has no marks.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has to hold {BEGIN!r} and {END!r}")
    return before + BEGIN + _verbs(parser()) + END + after


def _verbs(whole: argparse.ArgumentParser) -> str:
    (sub,) = (action for action in whole._actions if isinstance(action, argparse._SubParsersAction))
    return "".join(_verb(verb) for verb in sub.choices.values())


def _verb(verb: argparse.ArgumentParser) -> str:
    name = verb.prog.removeprefix("firesteel ")
    lines = [f"\n### {name}\n", "```text", f"firesteel {name} {_usage(verb)}".rstrip(), "```\n"]
    lines += [verb.description or "", "", "| Option | |", "| --- | --- |"]
    for action in verb._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        shown = ", ".join(action.option_strings) or _value(action)
        value = f" {_value(action)}" if action.option_strings and action.nargs != 0 else ""
        text = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{(shown + value).replace('|', ' or ')}` | {text} |")
    return "\n".join(lines) + "\n"


def _usage(verb: argparse.ArgumentParser) -> str:
    words = ["[options]"]
    for action in verb._actions:
        if not action.option_strings and action.help != argparse.SUPPRESS:
            value = _value(action)
            words.append(f"[{value}]" if action.nargs in ("?", "*", argparse.REMAINDER) else value)
    return " ".join(words)


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page(file.read_text()))
