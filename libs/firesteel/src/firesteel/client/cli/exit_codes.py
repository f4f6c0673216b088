"""How the command ends."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
"""What was asked for is done."""
FAILED: Final = 1
"""The job or the program failed, the cluster refused, or it does not answer."""
WRONG: Final = 2
"""The command line or the configuration is wrong; nothing was done."""
INTERRUPTED: Final = 130
"""Ctrl-C."""
TERMINATED: Final = 143
"""SIGTERM."""
