"""Sources that are read one after the other."""

from __future__ import annotations

from firesteel.connectors.hybrid_source import HybridSource, HybridSourceBuilder

__all__ = ["HybridSource", "HybridSourceBuilder"]
