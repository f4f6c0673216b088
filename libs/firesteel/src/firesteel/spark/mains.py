"""What runs in Spark's tasks, by name: nobody who starts tasks needs what is imported there."""

from __future__ import annotations

from typing import Final

from firesteel.core.by_name import ByName

SLOT_MAIN: Final = ByName("firesteel.runtime.slot.slot_main:slot_main")
"""Main function of a slot."""
STAGE_MAIN: Final = ByName("firesteel.runtime.bounded.stage_main:stage_main")
"""Main function of a task of bounded stages."""
