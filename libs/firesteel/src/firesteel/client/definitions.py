"""The ``-D`` definitions of ``firesteel run``, under the name that the client knows."""

from __future__ import annotations

from firesteel.config.definitions import hand_on, handed_on

__all__ = ["hand_on", "handed_on"]
