"""``python -m firesteel_yarn.task_executor``: becomes the TaskManager of a container, with its secret in a file.

Arguments are those of ``firesteel-taskmanager``; the container's directory is that of its configuration.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firesteel.core.errors import ConfigurationError
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel_yarn.token_file import keep_secret


def main(arguments: list[str]) -> int:
    """Returns only where something is wrong."""
    here = Path.cwd()
    try:
        keep_secret(os.environ, here, SECRET_FILE_NAME)
    except (ConfigurationError, OSError) as error:
        print(f"firesteel-taskmanager: {error}", file=sys.stderr)
        return 2
    words = [sys.executable, "-P", "-m", "firesteel_taskmanager", "--config-dir", str(here), *arguments]
    os.execv(sys.executable, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
