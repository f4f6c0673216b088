"""The public test kit: a clock that tests move, and a conformance kit for each kind of plug-in.

A kit drives a plug-in as a cluster does, through restarts and failures, and raises an ``AssertionError`` that says
which rule of the contract is broken. It needs no cluster and no test framework; the pages "Write your own" show each
in use.
"""

from __future__ import annotations

from firesteel.testing.cells_conformance import check_cells
from firesteel.testing.checkpoint_storage_conformance import check_checkpoint_storage
from firesteel.testing.clock import ManualClock
from firesteel.testing.file_format_conformance import check_file_format
from firesteel.testing.file_system_conformance import check_file_system
from firesteel.testing.high_availability_conformance import check_high_availability
from firesteel.testing.provider_conformance import check_provider
from firesteel.testing.rescaling_conformance import check_rescaling
from firesteel.testing.sink_conformance import check_sink
from firesteel.testing.source_conformance import check_source
from firesteel.testing.state_conformance import check_state_backend
from firesteel.testing.two_phase_conformance import check_two_phase_sink

__all__ = [
    "ManualClock",
    "check_cells",
    "check_checkpoint_storage",
    "check_file_format",
    "check_file_system",
    "check_high_availability",
    "check_provider",
    "check_rescaling",
    "check_sink",
    "check_source",
    "check_state_backend",
    "check_two_phase_sink",
]
