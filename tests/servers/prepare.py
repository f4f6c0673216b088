"""Makes ready what most tests of this folder wait for longest: an engine, the base image, and the layers of the image.

``python -m tests.servers.prepare`` can run beside other tests. What it could not do, the tests do, and say why not.
"""

from __future__ import annotations

import os
import sys

from tests.servers.compose_cluster import build_image, command, ensure_engine, foreign_settings, own_project


def main() -> int:
    """Returns the exit code."""
    for name in foreign_settings():
        del os.environ[name]
    done = ensure_engine()
    print(done.stdout, done.stderr, sep="", end="", flush=True)
    if done.returncode == 0:
        command("docker", "image", "rm", "--force", build_image(own_project()))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
