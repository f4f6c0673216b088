"""Sources and sinks, under PyFlink's module paths."""

from __future__ import annotations

from firesteel.datastream.connectors.base import Sink, Source

__all__ = ["Sink", "Source"]
