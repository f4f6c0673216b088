"""``firesteel completion``: scripts by which shells complete the command, made from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from firesteel.client.cli import exit_codes
from firesteel.client.console import Console

_FILES: Final = frozenset({"PATH", "DIR", "DIRECTORY", "FILE", "FILES", "PYTHON", "program.py"})
"""Names of values that are files or directories."""


@dataclass(frozen=True)
class Option:
    """An option of a verb.

    Attributes:
        spellings: with their hyphens.
        help: one line.
        takes_value: a word follows it.
        choices: that it may be.
        is_file: it is one.
    """

    spellings: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    is_file: bool


@dataclass(frozen=True)
class Verb:
    """A verb.

    Attributes:
        help: one line.
        options: of it.
        words: that its positional arguments may be.
        takes_files: one of these is a file.
    """

    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    takes_files: bool


def completion(parsed: argparse.Namespace, console: Console) -> int:
    """``firesteel completion``."""
    from firesteel.client.cli.arguments import parser

    console.say(script(parsed.shell, verbs_of(parser())))
    return exit_codes.DONE


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, Verb]:
    """All verbs that are shown, by name."""
    (sub,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {str(one.dest): one.help or "" for one in sub._choices_actions}
    return {
        name: _verb(helps[name], verb)
        for name, verb in sub.choices.items()
        if name in helps and not name.startswith("savepoint-")
    }


def _verb(text: str, parser: argparse.ArgumentParser) -> Verb:
    options, words, files = [], list[str](), False
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        names = action.metavar if isinstance(action.metavar, str) else ""
        choices = tuple(map(str, action.choices or ())) or tuple(names.strip("{}").split(",") if "{" in names else ())
        is_file = names in _FILES
        if action.option_strings:
            help_text = (action.help or "").partition(";")[0].replace("%%", "%")
            options.append(Option(tuple(action.option_strings), help_text, action.nargs != 0, choices, is_file))
        else:
            words += choices or [word for word in names.split("|") if word.islower() and "." not in word]
            files = files or is_file
    return Verb(text, tuple(options), tuple(words), files)


def script(shell: str, verbs: Mapping[str, Verb]) -> str:
    """The script of a shell: ``bash``, ``zsh`` or ``fish``."""
    if shell == "fish":
        return _fish(verbs)
    bash = _bash(verbs)
    return bash if shell == "bash" else f"autoload -U +X bashcompinit && bashcompinit\n{bash}"


def _bash(verbs: Mapping[str, Verb]) -> str:
    lines = [
        "_firesteel() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}",
        "    local words='' files=''",
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        COMPREPLY=($(compgen -W '{' '.join([*verbs, '--help', '--version'])}' -- \"$word\"))",
        "        return",
        "    fi",
        "    case $verb:$before in",
    ]
    for name, verb in verbs.items():
        for option in verb.options:
            if option.takes_value and (option.choices or option.is_file):
                patterns = "|".join(f"{name}:{spelling}" for spelling in option.spellings)
                act = f"words='{' '.join(option.choices)}'" if option.choices else "files=yes"
                lines.append(f"    {patterns}) {act} ;;")
            elif option.takes_value:
                lines.append(f"    {'|'.join(f'{name}:{one}' for one in option.spellings)}) return ;;")
    lines += ["    *)", "        case $verb in"]
    for name, verb in verbs.items():
        spellings = [spelling for option in verb.options for spelling in option.spellings]
        files = " files=yes" if verb.takes_files else ""
        lines.append(f"        {name}) words='{' '.join([*spellings, *verb.words])}'{files} ;;")
    lines += [
        "        esac",
        "        ;;",
        "    esac",
        '    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '    [ -z "$files" ] || COMPREPLY+=($(compgen -f -- "$word"))',
        "}",
        "complete -o filenames -F _firesteel firesteel",
    ]
    return "\n".join(lines)


def _fish(verbs: Mapping[str, Verb]) -> str:
    lines = ["complete -c firesteel -f"]
    for name, verb in verbs.items():
        lines.append(f"complete -c firesteel -n __fish_use_subcommand -a {name} -d {_quoted(verb.help)}")
    for name, verb in verbs.items():
        begin = f"complete -c firesteel -n '__fish_seen_subcommand_from {name}'"
        for option in verb.options:
            spelt = " ".join(map(_fish_option, option.spellings))
            value = ""
            if option.takes_value:
                value = (
                    " -r -F" if option.is_file else f" -x -a '{' '.join(option.choices)}'" if option.choices else " -x"
                )
            lines.append(f"{begin} {spelt}{value} -d {_quoted(option.help)}")
        if verb.words:
            lines.append(f"{begin} -a '{' '.join(verb.words)}'")
        if verb.takes_files:
            lines.append(f"{begin} -F")
    return "\n".join(lines)


def _fish_option(spelling: str) -> str:
    if spelling.startswith("--"):
        return f"-l {spelling[2:]}"
    return f"-s {spelling[1:]}" if len(spelling) == 2 else f"-o {spelling[1:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
