"""The ``firesteel`` command: one module for each group of verbs."""

from __future__ import annotations

from firesteel.client.cli.main import main

__all__ = ["main"]
