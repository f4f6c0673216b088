"""Options and verbs of ``flink`` that ``firesteel`` does not have: each is refused by its name, with what to use."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final, NoReturn

_WHERE: Final = "say which cluster is meant with --config-dir DIR or -m HOST:PORT"
_YARN: Final = (
    "options of clusters on YARN are set with -D (yarn.application.queue, taskmanager.memory.process.size ...): "
    "`firesteel run-application -t yarn`, or `firesteel yarn-session` and then `firesteel run -t yarn-session`"
)
_JAVA: Final = "Java programs don't run here; name a Python program: `firesteel run program.py`"

VERBS: Final = {
    "help": "use `firesteel --help` or `firesteel VERB --help`",
    "modify": "a running job can't be rescaled; stop it with a savepoint, and run it with -s PATH and another -p",
}

OF_CLUSTER_VERBS: Final[Sequence[tuple[Sequence[str], str]]] = (
    (("-z", "--zookeeperNamespace"), _WHERE),
    (("-e", "--executor"), "use -t remote"),
)
"""Spellings of an option, and what to use."""

OF_PROGRAMS: Final[Sequence[tuple[Sequence[str], str]]] = (
    (("-c", "--class"), _JAVA),
    (("-C", "--classpath"), f"{_JAVA}; its modules travel with -pyfs"),
    (("-j", "--jarfile"), _JAVA),
    (("-pypath", "--pyPythonPath"), "use -pyfs: what it names comes first on the path of the slots"),
    (("-q", "--sysoutLogging"), "logs of a job are with `firesteel logs JOB`"),
    (("-yd", "--yarndetached"), "use -d"),
    (("-ys", "-yjm", "-ytm", "-yqu", "-ynm", "-yat", "-yt", "-yj", "-yh", "-yq", "-yn", "-ynl", "-yz"), _YARN),
)
OF_PROGRAMS_HERE: Final[Sequence[tuple[Sequence[str], str]]] = (
    (
        ("-pyclientexec", "--pyClientExecutable"),
        "the program is run by the Python of this command: start `PYTHON -m firesteel run` with another one",
    ),
)
"""Refused options of programs that this process runs."""
OF_SAVEPOINT: Final[Sequence[tuple[Sequence[str], str]]] = (
    (("-j", "--jarfile"), "no program is needed to remove a savepoint: --dispose PATH alone"),
)


def refuse(verb: argparse.ArgumentParser, rows: Sequence[tuple[Sequence[str], str]]) -> None:
    """Have a verb refuse these options by their names."""
    for spellings, instead in rows:
        verb.add_argument(*spellings, action=RefusedOption, nargs=0, instead=instead, help=argparse.SUPPRESS)


def refused_target(text: str) -> str:
    """What to use in place of a target of Flink's; empty: it is unknown."""
    if text == "yarn-per-job":
        return f"that target is gone, in Flink too; {_YARN}"
    if text.startswith("yarn"):
        return _YARN
    return ""


class RefusedOption(argparse.Action):
    """An option of Flink's that can't be here; ``instead`` says what to use."""

    def __init__(self, option_strings: Sequence[str], dest: str, instead: str = "", **keywords: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, **keywords)
        self.instead = instead

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> NoReturn:
        parser.error(f"{option} is not supported: {self.instead}")
