"""The public test kit: a clock moved by hand, and conformance kits for what others implement."""

from __future__ import annotations

from firesteel.testing.cells_conformance import check_cells
from firesteel.testing.checkpoint_storage_conformance import check_checkpoint_storage
from firesteel.testing.checkpoint_store_conformance import check_checkpoint_store
from firesteel.testing.clock import ManualClock
from firesteel.testing.high_availability_conformance import check_high_availability
from firesteel.testing.provider_conformance import check_provider
from firesteel.testing.sink_conformance import check_sink
from firesteel.testing.source_conformance import check_source
from firesteel.testing.two_phase_conformance import check_two_phase_sink

__all__ = [
    "ManualClock",
    "check_cells",
    "check_checkpoint_storage",
    "check_checkpoint_store",
    "check_high_availability",
    "check_provider",
    "check_sink",
    "check_source",
    "check_two_phase_sink",
]
