"""Runs programs one after another in one process, so that they share its embedded cluster; see ``conftest.py``.

Reads a line of JSON for each program: its file, arguments, working directory and the files for its output. Answers with
a line on the descriptor that was standard output at the start: 0, or 1 if the program raised or exited otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import types
from pathlib import Path


def run(path: Path, arguments: list[str]) -> int:
    """The program as ``python path`` would run it: its module is ``__main__``, its folder on the path."""
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    before = sys.modules["__main__"], sys.argv, sys.path[0]
    sys.modules["__main__"], sys.argv, sys.path[0] = module, [str(path), *arguments], str(path.parent)
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    except SystemExit as end:
        return 0 if end.code in (None, 0) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.modules["__main__"], sys.argv, sys.path[0] = before
    return 0


def main() -> None:
    """Runs what it is told, until standard input ends."""
    home, answers = os.getcwd(), os.fdopen(os.dup(1), "w")
    shown = os.dup(1), os.dup(2)
    for line in sys.stdin:
        task = json.loads(line)
        os.chdir(task["folder"])
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(task[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        code = run(Path(task["path"]), task["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(shown, 1):
            os.dup2(descriptor, number)
        os.chdir(home)
        print(code, file=answers, flush=True)


if __name__ == "__main__":
    main()
