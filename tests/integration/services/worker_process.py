"""A stand-in for ``firesteel-taskmanager``: takes its arguments, and behaves as the first of them says.

``ok`` ends on SIGTERM, ``deaf`` does not and has a child that does not either, ``refuses`` ends with a sentence.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main(behaviour: str, *arguments: str) -> None:
    if behaviour == "refuses":
        print("firesteel-taskmanager: there is no such memory", file=sys.stderr)
        sys.exit(2)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if (child := os.fork()) == 0:
            signal.pause()
        Path(arguments[arguments.index("--log-file") + 1]).write_text(f"{child}\n")
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
