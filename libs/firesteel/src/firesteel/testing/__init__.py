"""The public test kit: a clock moved by hand, and conformance kits that sources and sinks can be held against."""

from __future__ import annotations

from firesteel.testing.clock import ManualClock
from firesteel.testing.sink_conformance import check_sink
from firesteel.testing.source_conformance import check_source

__all__ = ["ManualClock", "check_sink", "check_source"]
