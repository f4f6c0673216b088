"""``python -m firesteel_yarn.task_executor``: writes the secret of a container into a file and becomes its TaskManager.

Arguments are those of ``firesteel-taskmanager``; the container's directory has its configuration.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from firesteel.core.errors import ConfigurationError
from firesteel.core.secret import SECRET_FILE_NAME
from firesteel_yarn.token_file import keep_secret


def main(arguments: list[str]) -> int:
    """Become the TaskManager; returns an exit code only after an error."""
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
