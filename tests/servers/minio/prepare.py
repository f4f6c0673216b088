"""Makes a MinIO server ready, which may have to be built: tests of this folder come last, and wait for it if need be.

``python -m tests.servers.minio.prepare`` can run beside other tests.
"""

from __future__ import annotations

import subprocess
import sys

from tests.servers.minio.server import ENSURE

if __name__ == "__main__":
    sys.exit(subprocess.run(["sh", str(ENSURE)], stdin=subprocess.DEVNULL).returncode)
