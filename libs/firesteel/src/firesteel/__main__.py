"""``python -m firesteel``: the command ``firesteel``, also where its script is not on the path."""

from __future__ import annotations

import sys

from firesteel.client.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
