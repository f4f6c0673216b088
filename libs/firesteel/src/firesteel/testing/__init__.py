"""The public test kit: a clock moved by hand, and conformance kits for sources, sinks and worker drivers."""

from __future__ import annotations

from firesteel.testing.clock import ManualClock
from firesteel.testing.sink_conformance import check_sink
from firesteel.testing.source_conformance import check_source
from firesteel.testing.worker_driver_conformance import check_worker_driver

__all__ = ["ManualClock", "check_sink", "check_source", "check_worker_driver"]
